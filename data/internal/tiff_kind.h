#ifndef LOCKSTEP_DATA_INTERNAL_TIFF_KIND_H_
#define LOCKSTEP_DATA_INTERNAL_TIFF_KIND_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/tiff_directory.h"

namespace lockstep::data::internal {

// TIFF's numbers for what the samples of a pixel mean.
enum TiffPhotometric : int64_t {
  kWhiteIsZero = 0,
  kBlackIsZero = 1,
  kTiffRgb = 2,
  kTiffPalette = 3,
  kTiffCmyk = 5,
  kTiffYcbcr = 6,
};

// How an image is stored in a TIFF file.
struct TiffKind {
  ImageSize size;           // as stored
  int64_t orientation = 1;  // 1 to 8
  int64_t photometric = 0;
  int64_t bits = 1;     // of a sample
  int64_t samples = 1;  // of a pixel
  int64_t planes = 1;   // 1, or as many as samples, which then lie apart
  int64_t compression = 1;
  bool has_differences = false;  // of neighbours, instead of samples
  bool is_premultiplied = false;
  bool is_big_endian = false;
  bool is_tiled = false;
  ImageSize block;  // of a tile or strip, of which the last may be lower
  // Libtiff makes the pixels, as Pillow does: fax, JPEG and compressed or subsampled YCbCr. Otherwise it makes bytes.
  bool is_libtiffs = false;

  int64_t blocks_across() const { return (size.width + block.width - 1) / block.width; }
  int64_t blocks_down() const { return (size.height + block.height - 1) / block.height; }
  bool is_compressed() const { return compression != 1; }

  // Bytes of a row of a block in one plane.
  int64_t row_bytes() const { return (block.width * (samples / planes) * bits + 7) / 8; }
};

// InvalidArgument: Pillow reads this kind otherwise than TiffDecoder, or not at all. DataLoss: the file is damaged.
// ResourceExhausted: its tiles are out of proportion to the image.
absl::StatusOr<TiffKind> KindOf(const TiffDirectory& directory);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_TIFF_KIND_H_
