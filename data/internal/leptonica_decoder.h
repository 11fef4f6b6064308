// Decodes BMP and WebP files for which Leptonica's pixels equal Pillow's after its conversion to RGB.

#ifndef LOCKSTEP_DATA_INTERNAL_LEPTONICA_DECODER_H_
#define LOCKSTEP_DATA_INTERNAL_LEPTONICA_DECODER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/pixel_buffer.h"

namespace lockstep::data::internal {

// Decodes one image after another, each by Open() and Decode(). For one thread. Silences Leptonica's messages in the
// whole process.
class LeptonicaDecoder {
 public:
  // Whether `bytes` begin like a file of one of the formats.
  static bool Recognises(absl::string_view bytes);

  // Like ImageDecoder's functions, without the check of the size. Decodes the whole image. InvalidArgument: Leptonica
  // reads this kind (such as alpha in BMP) differently from Pillow.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ImageView> Decode();

 private:
  absl::string_view bytes_;
  ImageSize size_;
  PixelBuffer buffer_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_LEPTONICA_DECODER_H_
