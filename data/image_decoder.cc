#include "lockstep/data/image_decoder.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/internal/jpeg_decoder.h"

namespace lockstep::data {
namespace {

constexpr int64_t kBytesShown = 8;

absl::Status UnknownFormat(absl::string_view bytes) {
  if (bytes.empty()) return absl::InvalidArgumentError("expected an image, found an empty file");
  return absl::InvalidArgumentError(absl::StrCat("expected an image of JPEG, found a file that begins with the bytes ",
                                                 absl::BytesToHexString(bytes.substr(0, kBytesShown))));
}

absl::Status CheckSize(const ImageSize& size, int64_t max_pixels) {
  // Neither is 2^31 or more.
  if (size.height * size.width <= max_pixels) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("expected an image of at most ", max_pixels,
                                                   " pixels (max_pixels), found one of ", size.width, "x",
                                                   size.height));
}

bool Contains(const ImageSize& size, const Rectangle& part) {
  return part.top >= 0 && part.left >= 0 && part.height > 0 && part.width > 0 &&
         part.top <= size.height - part.height && part.left <= size.width - part.width;
}

absl::Status CheckPart(const ImageSize& size, const Rectangle& part) {
  if (Contains(size, part)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected a part of an image of ", size.width, "x", size.height,
                                                 ", found ", part.width, "x", part.height, " at (", part.left, ", ",
                                                 part.top, ")"));
}

}  // namespace

struct ImageDecoder::Decoders {
  JpegDecoder jpeg;
  ImageSize size;
  bool open = false;
};

ImageDecoder::ImageDecoder(const ImageDecoderOptions& options)
    : options_(options), decoders_(std::make_unique<Decoders>()) {}
ImageDecoder::~ImageDecoder() = default;
ImageDecoder::ImageDecoder(ImageDecoder&&) noexcept = default;
ImageDecoder& ImageDecoder::operator=(ImageDecoder&&) noexcept = default;

absl::StatusOr<ImageSize> ImageDecoder::Open(absl::string_view bytes) {
  decoders_->open = false;
  if (!JpegDecoder::Recognises(bytes)) return UnknownFormat(bytes);
  LOCKSTEP_ASSIGN_OR_RETURN(decoders_->size, decoders_->jpeg.Open(bytes));
  LOCKSTEP_RETURN_IF_ERROR(CheckSize(decoders_->size, options_.max_pixels));
  decoders_->open = true;
  return decoders_->size;
}

absl::StatusOr<ImageView> ImageDecoder::Decode(const Rectangle& wanted) {
  if (!std::exchange(decoders_->open, false)) {
    return absl::FailedPreconditionError("expected Open() to have succeeded since the last Decode()");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckPart(decoders_->size, wanted));
  return decoders_->jpeg.Decode(wanted);
}

}  // namespace lockstep::data
