// Decodes PBM, PGM and PPM files, with the pixels of Pillow after conversion to RGB.

#ifndef LOCKSTEP_DATA_INTERNAL_PNM_DECODER_H_
#define LOCKSTEP_DATA_INTERNAL_PNM_DECODER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/pixel_buffer.h"

namespace lockstep::data::internal {

// Decodes one image after another, each by Open() and Decode(). For one thread.
class PnmDecoder {
 public:
  // Returns whether `bytes` begin like a PNM file: P1 to P6 and a space.
  static bool Recognises(absl::string_view bytes);

  // Like ImageDecoder's functions, without the check of the size. Decodes the whole image.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ImageView> Decode();

 private:
  bool is_bitmap() const { return colors_ == 1 && max_ == 0; }

  // The next number of the header, from 1 to `limit`.
  absl::StatusOr<int64_t> HeaderNumber(absl::string_view what, int64_t limit);
  absl::Status CheckLength() const;
  absl::Status DecodeText(uint8_t* out);
  absl::StatusOr<int> TextSample();
  void DecodeBits(uint8_t* out);
  void DecodeNumbers(uint8_t* out);
  uint8_t* Write(uint8_t* out, int sample) const;

  absl::string_view rest_;  // of the file
  bool is_text_ = false;
  int64_t colors_ = 1;
  int64_t max_ = 0;  // the largest sample; 0: bits
  ImageSize size_;
  PixelBuffer buffer_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_PNM_DECODER_H_
