#ifndef LOCKSTEP_DATA_INTERNAL_TIFF_DIRECTORY_H_
#define LOCKSTEP_DATA_INTERNAL_TIFF_DIRECTORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::data::internal {

// The tags that decide how an image is read.
enum class TiffTag : uint16_t {
  kWidth = 256,
  kHeight = 257,
  kBits = 258,
  kCompression = 259,
  kPhotometric = 262,
  kFillOrder = 266,
  kStripOffsets = 273,
  kOrientation = 274,
  kSamples = 277,
  kRowsPerStrip = 278,
  kStripSizes = 279,
  kPlanes = 284,
  kPredictor = 317,
  kPalette = 320,
  kTileWidth = 322,
  kTileHeight = 323,
  kTileOffsets = 324,
  kTileSizes = 325,
  kExtraSamples = 338,
  kSampleFormat = 339,
  kSubsampling = 530,
};

// The numbers in a TIFF file's description of its first image.
class TiffDirectory {
 public:
  // Returns whether `bytes` begin like a TIFF file, other than BigTIFF.
  static bool Recognises(absl::string_view bytes);

  // `bytes` must outlive the result. DataLoss: the description reaches beyond the end of the file.
  static absl::StatusOr<TiffDirectory> Read(absl::string_view bytes);

  // Returns whether the file has whole numbers under `tag`.
  bool Has(TiffTag tag) const { return fields_.count(tag) != 0; }

  // The first number under `tag`, or `otherwise` if the file has none.
  int64_t Value(TiffTag tag, int64_t otherwise) const;

  // All of them; empty if the file has none.
  std::vector<int64_t> Values(TiffTag tag) const;

  bool is_big_endian() const { return is_big_endian_; }

  // A copy of the file whose image is stored upright: row by row from the top, each from the left.
  std::string WithoutOrientation() const;

 private:
  // `count` numbers of `width` bytes at `at`, all inside the file.
  struct Field {
    size_t at = 0;
    int64_t width = 0;
    int64_t count = 0;
  };

  int64_t Number(size_t at, int64_t width) const;
  void ReadEntry(size_t at);

  absl::string_view bytes_;
  bool is_big_endian_ = false;
  std::unordered_map<TiffTag, Field> fields_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_TIFF_DIRECTORY_H_
