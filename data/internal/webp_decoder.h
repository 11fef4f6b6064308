// Decodes WebP files of one image, with the pixels of Pillow after conversion to RGB.

#ifndef LOCKSTEP_DATA_INTERNAL_WEBP_DECODER_H_
#define LOCKSTEP_DATA_INTERNAL_WEBP_DECODER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/pixel_buffer.h"

namespace lockstep::data::internal {

// Decodes one image after another, each by Open() and Decode(). For one thread. Silences Leptonica's messages in the
// whole process.
class WebpDecoder {
 public:
  // Returns whether `bytes` begin like a WebP file.
  static bool Recognises(absl::string_view bytes);

  // Like ImageDecoder's functions, without the check of the size. Decodes the whole image. InvalidArgument: it is an
  // animation.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ImageView> Decode();

 private:
  absl::string_view bytes_;
  ImageSize size_;
  PixelBuffer buffer_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_WEBP_DECODER_H_
