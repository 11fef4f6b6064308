// BMP, PNM, TIFF and WebP, as far as Leptonica's pixels are those that Pillow converts to RGB.

#ifndef LOCKSTEP_DATA_INTERNAL_LEPTONICA_DECODER_H_
#define LOCKSTEP_DATA_INTERNAL_LEPTONICA_DECODER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/pixel_buffer.h"

namespace lockstep::data {

// One image after another. Its steps: Open(), the caller's look at the size, Decode(). For one thread. Silences what
// Leptonica would print, in the whole process.
class LeptonicaDecoder {
 public:
  // Whether `bytes` begin as files of one of the formats do.
  static bool Recognises(absl::string_view bytes);

  // As ImageDecoder's, but for the check of the size. The whole image is decoded. InvalidArgument: of a kind (say CMYK
  // in TIFF) that Leptonica reads otherwise than Pillow.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ImageView> Decode();

 private:
  absl::string_view bytes_;
  ImageSize size_;
  PixelBuffer buffer_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_INTERNAL_LEPTONICA_DECODER_H_
