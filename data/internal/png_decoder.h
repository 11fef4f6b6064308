// Decodes PNG files, with the pixels of Pillow after conversion to RGB.

#ifndef LOCKSTEP_DATA_INTERNAL_PNG_DECODER_H_
#define LOCKSTEP_DATA_INTERNAL_PNG_DECODER_H_

#include <png.h>

#include <csetjmp>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/pixel_buffer.h"

namespace lockstep::data::internal {

// Decodes one image after another, each by Open() and Decode(). For one thread.
class PngDecoder {
 public:
  PngDecoder() = default;
  ~PngDecoder() { Close(); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // Returns whether `bytes` begin like a PNG file.
  static bool Recognises(absl::string_view bytes);

  // Like ImageDecoder's functions, without the check of the size. Decodes the whole image.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ImageView> Decode();

 private:
  // Runs `step`. An error inside libpng leaves it by longjmp, so its frame and its callees must not have objects with
  // destructors. The memory is libpng's, and Close() frees it.
  absl::Status Guarded(void (PngDecoder::*step)());
  [[noreturn]] static void Land(png_structp png, png_const_charp message);
  static void ReadBytes(png_structp png, png_bytep to, size_t count);

  void ReadHeader();
  void Configure();
  void ReadRows();
  void Close();

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf landing_;
  char message_[128];
  absl::string_view rest_;  // of the file
  PixelBuffer buffer_;
  std::vector<png_bytep> rows_;  // in buffer_
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_PNG_DECODER_H_
