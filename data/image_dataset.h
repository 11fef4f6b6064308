// A folder of image files as a dataset to train on.

#ifndef LOCKSTEP_DATA_IMAGE_DATASET_H_
#define LOCKSTEP_DATA_IMAGE_DATASET_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"
#include "lockstep/data/image_decoder.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_transform.h"

namespace lockstep::data {

struct ImageDatasetOptions {
  ImageDecoderOptions decoder;
  // Decodes a JPEG file at the smallest of 1/1, 1/2, 1/4 and 1/8 of its size at which the part to be resized still has
  // at least as many pixels as the result, in both directions. The random draws do not change. The pixels differ from
  // Pillow's, and the edges of the part move to whole pixels of the smaller image, by at most half a pixel of the
  // result. For photographs of 3000 x 2000 pixels and 0.9 MB, RandomResizedCrop(224) takes 10 ms each on one core
  // instead of 15; entropy decoding, which remains, is most of it.
  bool scaled_decode = false;
};

// The samples of an ImageFolder, decoded and transformed: torchvision's ImageFolder(root, transform).
//
//   LOCKSTEP_ASSIGN_OR_RETURN(ImageFolder folder, ImageFolder::Create("imagenet/train"));
//   LOCKSTEP_ASSIGN_OR_RETURN(const ImageDataset train, ImageDataset::Create(std::move(folder), transform));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Example first, train.Get(0, random));
//
// Only the part of an image that the drawn transform needs is decoded. Memory for files and pixels is kept for reuse,
// once for each thread that has been in a call at the same time as others.
class ImageDataset : public Dataset {
 public:
  static absl::StatusOr<ImageDataset> Create(ImageFolder folder, ImageTransform transform,
                                             const ImageDatasetOptions& options = {});
  ~ImageDataset() override;
  ImageDataset(ImageDataset&&) noexcept;
  ImageDataset& operator=(ImageDataset&&) noexcept;

  const ImageFolder& folder() const { return folder_; }

  int64_t size() const override { return static_cast<int64_t>(folder_.samples().size()); }

  // The image after `transform`, whose draws come from `random` (a CPU generator), and its class, int64 [].
  //
  // Errors name the file: "imagenet/train/n01440764/x.JPEG: ...". NotFound, PermissionDenied, ...: the file cannot be
  // opened or read. ResourceExhausted: it has more than 1 GiB. OutOfRange: index is not in [0, size()). Other errors
  // come from ImageDecoder and ImageTransform.
  absl::StatusOr<Example> Get(int64_t index, at::Generator& random) const override;

  // Writes the same example into its place in a batch. InvalidArgument: the image has another size than its place.
  absl::Status GetInto(int64_t index, at::Generator& random, at::Tensor& data, at::Tensor& target) const override;

 private:
  struct Reader;
  class Readers;

  ImageDataset(ImageFolder folder, ImageTransform transform, const ImageDatasetOptions& options);

  absl::Status CheckIndex(int64_t index) const;
  absl::StatusOr<at::Tensor> Image(int64_t index, at::Generator& random, const at::Tensor& into) const;
  absl::StatusOr<at::Tensor> Image(const std::string& path, Reader& reader, at::Generator& random,
                                   const at::Tensor& into) const;

  ImageFolder folder_;
  ImageTransform transform_;
  bool scaled_decode_;
  std::unique_ptr<Readers> readers_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IMAGE_DATASET_H_
