#include "lockstep/data/internal/tiff_kind.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"

namespace lockstep::data::internal {
namespace {

enum Compression : int64_t {
  kNone = 1,
  kFaxRows = 2,
  kFax3 = 3,
  kFax4 = 4,
  kLzw = 5,
  kJpeg = 7,
  kDeflate = 8,
  kPackBits = 32773,
  kOldDeflate = 32946,
  kLzma = 34925,
  kZstd = 50000,
};

enum ExtraSample : int64_t { kUnspecified = 0, kPremultipliedAlpha = 1, kAlpha = 2, kCorelsAlpha = 999 };

constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();

// Tiles may have more pixels than the image, which must be decoded too.
constexpr double kPaddingOfTiles = 8;
constexpr double kSparePixels = 1 << 24;

absl::Status Unsupported(const TiffKind& kind, absl::string_view what = "") {
  return absl::InvalidArgumentError(absl::StrCat(
      "expected TIFF of a kind that is read as Pillow reads it, found one of ", kind.samples, " samples a pixel of ",
      kind.bits, " bits with photometric interpretation ", kind.photometric, " and compression ", kind.compression,
      kind.planes > 1 ? ", in planes" : "", kind.is_tiled ? ", in tiles" : "", what));
}

bool Is(int64_t value, std::initializer_list<int64_t> any) {
  return std::find(any.begin(), any.end(), value) != any.end();
}

bool AreZero(const std::vector<int64_t>& values, size_t from) {
  return std::all_of(values.begin() + std::min(from, values.size()), values.end(),
                     [](int64_t value) { return value == kUnspecified; });
}

absl::Status ReadSize(const TiffDirectory& directory, TiffKind& kind) {
  kind.size = {directory.Value(TiffTag::kHeight, 0), directory.Value(TiffTag::kWidth, 0)};
  kind.is_tiled = directory.Has(TiffTag::kTileWidth) && !directory.Has(TiffTag::kStripOffsets);
  kind.block = {std::min(directory.Value(TiffTag::kRowsPerStrip, kLongest), kind.size.height), kind.size.width};
  if (kind.is_tiled) kind.block = {directory.Value(TiffTag::kTileHeight, 0), directory.Value(TiffTag::kTileWidth, 0)};
  for (const int64_t length : {kind.size.height, kind.size.width, kind.block.height, kind.block.width}) {
    if (length > 0 && length <= kLongest) continue;
    return absl::DataLossError(absl::StrCat("expected a TIFF image and its strips or tiles to have from 1 to ",
                                            kLongest, " rows and columns, found ", length, ": it is damaged"));
  }
  const double padded = 1.0 * kind.blocks_across() * kind.block.width * kind.blocks_down() * kind.block.height;
  if (padded <= kPaddingOfTiles * kind.size.height * kind.size.width + kSparePixels) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("expected a TIFF image of ", kind.size.width, "x", kind.size.height,
                                                   " to have tiles not much larger, found ", kind.block.width, "x",
                                                   kind.block.height));
}

absl::Status ReadSamples(const TiffDirectory& directory, TiffKind& kind) {
  const std::vector<int64_t> bits = directory.Values(TiffTag::kBits);
  kind.bits = bits.empty() ? 1 : bits[0];
  kind.samples = directory.Value(TiffTag::kSamples, 1);
  kind.planes = directory.Value(TiffTag::kPlanes, 1) == 2 ? kind.samples : 1;
  if (kind.samples < 1 || kind.samples > 6) return Unsupported(kind);
  if (std::any_of(bits.begin(), bits.end(), [&](int64_t other) { return other != kind.bits; }))
    return Unsupported(kind, ", of different bits");
  for (const int64_t format : directory.Values(TiffTag::kSampleFormat)) {
    if (format != 1) return Unsupported(kind, ", whose samples are not unsigned whole numbers");
  }
  return absl::OkStatus();
}

// Returns whether the samples after the colours are alpha or nothing, and can be dropped as in Pillow.
bool ReadExtraSamples(const TiffDirectory& directory, TiffKind& kind) {
  const std::vector<int64_t> extra = directory.Values(TiffTag::kExtraSamples);
  const int64_t colors = kind.photometric == kTiffCmyk ? 4 : Is(kind.photometric, {kTiffRgb, kTiffYcbcr}) ? 3 : 1;
  if (extra.empty())
    return kind.samples == colors || (kind.photometric == kTiffRgb && kind.samples == 4 && kind.planes == 1);
  if (static_cast<int64_t>(extra.size()) != kind.samples - colors || !AreZero(extra, 1)) return false;
  kind.is_premultiplied = extra[0] == kPremultipliedAlpha;
  switch (kind.photometric) {
    case kTiffRgb:
      if (kind.bits == 16) return extra.size() == 1 && Is(extra[0], {kUnspecified, kPremultipliedAlpha, kAlpha});
      return Is(extra[0], {kUnspecified, kPremultipliedAlpha, kAlpha, kCorelsAlpha});
    case kBlackIsZero:
    case kTiffPalette:
      return kind.bits == 8 && extra.size() == 1 && Is(extra[0], {kUnspecified, kAlpha});
    case kTiffCmyk:
      return kind.bits == 8 && AreZero(extra, 0);
  }
  return false;
}

bool AreBitsAsPillows(const TiffKind& kind) {
  switch (kind.photometric) {
    case kWhiteIsZero:
      return Is(kind.bits, {1, 2, 4, 8}) || (kind.bits == 16 && !kind.is_big_endian);
    case kBlackIsZero:
      return Is(kind.bits, {1, 2, 4, 8, 16});
    case kTiffRgb:
    case kTiffCmyk:
      return Is(kind.bits, {8, 16});
    case kTiffPalette:
      return Is(kind.bits, {1, 2, 4, 8});
    case kTiffYcbcr:
      return kind.bits == 8;
  }
  return false;
}

// Returns whether libtiff's pixels were equal to Pillow's in a comparison. False for a file that is tiled or has
// planes.
bool IsLibtiffAsPillow(const TiffKind& kind) {
  if (kind.is_tiled || kind.planes > 1 || !Is(kind.photometric, {kWhiteIsZero, kBlackIsZero, kTiffRgb, kTiffYcbcr}))
    return false;
  if (kind.samples == 1) return Is(kind.bits, {1, 8});
  return kind.samples <= 3 && kind.bits == 8;
}

bool IsSubsampled(const TiffDirectory& directory) {
  const std::vector<int64_t> subsampling = directory.Values(TiffTag::kSubsampling);
  return std::any_of(subsampling.begin(), subsampling.end(), [](int64_t factor) { return factor != 1; });
}

absl::Status ReadDifferences(const TiffDirectory& directory, TiffKind& kind) {
  if (!Is(kind.compression, {kLzw, kDeflate, kOldDeflate, kLzma, kZstd})) return absl::OkStatus();
  const int64_t predictor = directory.Value(TiffTag::kPredictor, 1);
  kind.has_differences = predictor == 2;
  if (predictor > 2 || (kind.has_differences && kind.bits < 8))
    return Unsupported(kind, absl::StrCat(", with predictor ", predictor));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TiffKind> KindOf(const TiffDirectory& directory) {
  TiffKind kind;
  kind.is_big_endian = directory.is_big_endian();
  kind.compression = directory.Value(TiffTag::kCompression, kNone);
  kind.photometric = directory.Value(TiffTag::kPhotometric, kWhiteIsZero);
  kind.orientation = directory.Value(TiffTag::kOrientation, 1);
  if (kind.orientation < 1 || kind.orientation > 8) kind.orientation = 1;
  LOCKSTEP_RETURN_IF_ERROR(ReadSize(directory, kind));
  LOCKSTEP_RETURN_IF_ERROR(ReadSamples(directory, kind));
  kind.is_libtiffs = directory.Value(TiffTag::kFillOrder, 1) == 2 ||
                     Is(kind.compression, {kFaxRows, kFax3, kFax4, kJpeg}) ||
                     (kind.photometric == kTiffYcbcr && (kind.is_compressed() || IsSubsampled(directory)));
  if (kind.is_libtiffs) return IsLibtiffAsPillow(kind) ? absl::StatusOr<TiffKind>(kind) : Unsupported(kind);
  if (!Is(kind.compression, {kNone, kLzw, kDeflate, kPackBits, kOldDeflate, kLzma, kZstd})) return Unsupported(kind);
  if (!AreBitsAsPillows(kind) || !ReadExtraSamples(directory, kind)) return Unsupported(kind);
  if (kind.planes > 1 && (kind.bits != 8 || kind.is_premultiplied || !Is(kind.photometric, {kTiffRgb, kTiffCmyk})))
    return Unsupported(kind);
  LOCKSTEP_RETURN_IF_ERROR(ReadDifferences(directory, kind));
  return kind;
}

}  // namespace lockstep::data::internal
