// Decodes BMP files without run-length encoding, with the pixels of Pillow after conversion to RGB.

#ifndef LOCKSTEP_DATA_INTERNAL_BMP_DECODER_H_
#define LOCKSTEP_DATA_INTERNAL_BMP_DECODER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/pixel_buffer.h"

namespace lockstep::data::internal {

// Decodes one image after another, each by Open() and Decode(). For one thread.
class BmpDecoder {
 public:
  // Returns whether `bytes` begin like a BMP file.
  static bool Recognises(absl::string_view bytes);

  // Like ImageDecoder's functions, without the check of the size. Decodes the whole image.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ImageView> Decode();

 private:
  // The number of `width` bytes at byte `at` of the file, which must have it.
  uint32_t Number(size_t at, int width) const;

  absl::Status ReadSize();
  absl::Status ReadKind();
  absl::Status ReadMasks();
  absl::Status ReadPlaces();
  absl::Status Unsupported() const;
  absl::Status Truncated() const;
  void RowToRgb(const uint8_t* row, uint8_t* out) const;
  void PaletteRowToRgb(const uint8_t* row, uint8_t* out) const;
  void ShortRowToRgb(const uint8_t* row, uint8_t* out) const;

  absl::string_view bytes_;
  ImageSize size_;
  bool is_top_down_ = false;
  size_t header_size_ = 0;
  uint32_t bits_ = 0;                  // of a pixel
  uint32_t compression_ = 0;           // 0: none; 3: none, and masks say where colours are
  int green_bits_ = 5;                 // of a pixel of 16 bits
  int bytes_of_color_[3] = {2, 1, 0};  // where red, green and blue are in a pixel of 24 or 32 bits
  size_t palette_ = 0;                 // where it begins
  size_t palette_step_ = 4;            // bytes of a colour in it
  size_t colors_ = 0;                  // in it
  size_t pixels_ = 0;                  // where they begin
  PixelBuffer buffer_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_BMP_DECODER_H_
