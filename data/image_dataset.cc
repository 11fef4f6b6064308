#include "lockstep/data/image_dataset.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/data/geometry.h"
#include "lockstep/data/internal/whole_file.h"

namespace lockstep::data {
namespace {

// Far more than a decodable image has. A file's size alone must not use up the memory of training.
constexpr int64_t kMostFileBytes = int64_t{1} << 30;

// Makes the decoder shrink the image as far as possible without the resize magnifying it. Returns `geometry` for the
// smaller image.
absl::StatusOr<Geometry> Shrink(ImageDecoder& decoder, const Geometry& geometry) {
  const int64_t ratio =
      std::min(geometry.source.height / geometry.resized.height, geometry.source.width / geometry.resized.width);
  LOCKSTEP_ASSIGN_OR_RETURN(const ShrunkImage image, decoder.Shrink(std::max<int64_t>(ratio, 1)));
  return Shrunk(geometry, image.denominator);
}

}  // namespace

// The objects with which one thread reads.
struct ImageDataset::Reader {
  std::vector<char> file;
  ImageDecoder decoder;
};

// The readers that are not in use.
class ImageDataset::Readers {
 public:
  explicit Readers(const ImageDecoderOptions& options) : options_(options) {}

  std::unique_ptr<Reader> Take() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) return std::make_unique<Reader>(Reader{{}, ImageDecoder(options_)});
    std::unique_ptr<Reader> reader = std::move(idle_.back());
    idle_.pop_back();
    return reader;
  }

  void Give(std::unique_ptr<Reader> reader) {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(reader));
  }

 private:
  const ImageDecoderOptions options_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Reader>> idle_ ABSL_GUARDED_BY(mutex_);
};

ImageDataset::ImageDataset(ImageFolder folder, ImageTransform transform, const ImageDatasetOptions& options)
    : folder_(std::move(folder)),
      transform_(std::move(transform)),
      scaled_decode_(options.scaled_decode),
      readers_(std::make_unique<Readers>(options.decoder)) {}

ImageDataset::~ImageDataset() = default;
ImageDataset::ImageDataset(ImageDataset&&) noexcept = default;
ImageDataset& ImageDataset::operator=(ImageDataset&&) noexcept = default;

absl::StatusOr<ImageDataset> ImageDataset::Create(ImageFolder folder, ImageTransform transform,
                                                  const ImageDatasetOptions& options) {
  if (options.decoder.max_pixels < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ImageDataset: expected max_pixels of at least 1, found ", options.decoder.max_pixels));
  }
  return ImageDataset(std::move(folder), std::move(transform), options);
}

absl::Status ImageDataset::CheckIndex(int64_t index) const {
  if (0 <= index && index < size()) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("ImageDataset: expected an index in [0, ", size(), "), found ", index));
}

absl::StatusOr<Example> ImageDataset::Get(int64_t index, at::Generator& random) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex(index));
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor image, Image(index, random, {}));
  return Example{image, at::scalar_tensor(folder_.samples()[index].target, at::kLong)};
}

absl::Status ImageDataset::GetInto(int64_t index, at::Generator& random, at::Tensor& data, at::Tensor& target) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex(index));
  LOCKSTEP_RETURN_IF_ERROR(Image(index, random, data).status());
  return TorchStatus(folder_.samples()[index].path, [&] { target.fill_(folder_.samples()[index].target); });
}

// Writes to `into`, or to a new tensor if `into` is undefined.
absl::StatusOr<at::Tensor> ImageDataset::Image(int64_t index, at::Generator& random, const at::Tensor& into) const {
  const std::string& path = folder_.samples()[index].path;
  std::unique_ptr<Reader> reader = readers_->Take();
  absl::StatusOr<at::Tensor> image = Image(path, *reader, random, into);
  readers_->Give(std::move(reader));
  if (!image.ok()) return Annotate(image.status(), path);
  return image;
}

absl::StatusOr<at::Tensor> ImageDataset::Image(const std::string& path, Reader& reader, at::Generator& random,
                                               const at::Tensor& into) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view bytes, internal::ReadWholeFile(path, kMostFileBytes, reader.file));
  LOCKSTEP_ASSIGN_OR_RETURN(const ImageSize size, reader.decoder.Open(bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(Geometry geometry, transform_.Draw(size, random));
  if (scaled_decode_) {
    LOCKSTEP_ASSIGN_OR_RETURN(geometry, Shrink(reader.decoder, geometry));
  }
  const Rectangle needed = NeededSource(geometry);
  ImageView view;
  if (needed.height > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(view, reader.decoder.Decode(needed));
  }
  at::Tensor image = into;
  if (!image.defined()) {
    LOCKSTEP_ASSIGN_OR_RETURN(image, TorchStatusOr("", [&] { return transform_.Empty(geometry); }));
  }
  LOCKSTEP_RETURN_IF_ERROR(transform_.Write(view, geometry, image));
  return image;
}

}  // namespace lockstep::data
