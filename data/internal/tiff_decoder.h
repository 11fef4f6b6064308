// Decodes TIFF files, with the pixels of Pillow after conversion to RGB.

#ifndef LOCKSTEP_DATA_INTERNAL_TIFF_DECODER_H_
#define LOCKSTEP_DATA_INTERNAL_TIFF_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/pixel_buffer.h"
#include "lockstep/data/internal/tiff_directory.h"
#include "lockstep/data/internal/tiff_kind.h"

namespace lockstep::data::internal {

// Decodes one image after another, each by Open() and Decode(). For one thread. Of a file of several images it reads
// the first. Turns the image as its orientation says. Silences Leptonica's messages in the whole process.
class TiffDecoder {
 public:
  // Returns whether `bytes` begin like a TIFF file.
  static bool Recognises(absl::string_view bytes) { return TiffDirectory::Recognises(bytes); }

  // Like ImageDecoder's functions, without the check of the size. Decodes the whole image.
  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ImageView> Decode();

 private:
  absl::Status DecodeWhole();
  absl::Status DecodeBlocks();
  absl::Status DecodeBlock(int64_t top, int64_t left, int64_t number);

  // Writes `rows` rows of the bytes of strip or tile `number` to `out`.
  absl::Status ReadBlock(int64_t number, int64_t rows, uint8_t* out);
  absl::Status Inflate(absl::string_view compressed, int64_t rows, uint8_t* out);

  // Writes `width` pixels of row `y` from column `left` on to where they are in the upright image.
  void Place(int64_t y, int64_t left, int64_t width, const uint8_t* rgb);

  absl::string_view bytes_;
  TiffKind kind_;
  std::vector<int64_t> palette_;
  std::vector<int64_t> offsets_;  // of strips or tiles
  std::vector<int64_t> sizes_;
  std::string upright_;  // the file without its orientation, if libtiff makes the pixels
  uint8_t* pixels_ = nullptr;
  PixelBuffer buffer_;
  PixelBuffer block_;
  PixelBuffer plane_;
  PixelBuffer row_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_TIFF_DECODER_H_
