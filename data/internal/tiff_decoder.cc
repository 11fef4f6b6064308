#include "lockstep/data/internal/tiff_decoder.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/internal/leptonica.h"
#include "lockstep/data/internal/tiff_colors.h"

namespace lockstep::data::internal {
namespace {

absl::Status Damaged() {
  return absl::DataLossError("Leptonica: the TIFF data is damaged, truncated or of a compression that libtiff lacks");
}

void AppendLittleEndian(std::string& out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> 8 * i));
}

// A TIFF file of one strip with the compressed bytes of another file's strip or tile, as grey of `width` by `height`.
// Leptonica cannot read tiles, and reads other colours differently from Pillow.
std::string AsGrey(absl::string_view compressed, int64_t compression, int64_t width, int64_t height) {
  constexpr uint32_t kLong = 4;
  const std::pair<TiffTag, int64_t> entries[] = {
      {TiffTag::kWidth, width},
      {TiffTag::kHeight, height},
      {TiffTag::kBits, 8},
      {TiffTag::kCompression, compression},
      {TiffTag::kPhotometric, kBlackIsZero},
      {TiffTag::kStripOffsets, 0},
      {TiffTag::kSamples, 1},
      {TiffTag::kRowsPerStrip, height},
      {TiffTag::kStripSizes, compressed.size()},
  };
  std::string file("II*\0\x08\0\0\0", 8);
  AppendLittleEndian(file, std::size(entries), 2);
  const size_t data = file.size() + std::size(entries) * 12 + 4;
  for (const auto& [tag, value] : entries) {
    AppendLittleEndian(file, static_cast<uint32_t>(tag), 2);
    AppendLittleEndian(file, kLong, 2);
    AppendLittleEndian(file, 1, 4);
    AppendLittleEndian(file, tag == TiffTag::kStripOffsets ? data : value, 4);
  }
  AppendLittleEndian(file, 0, 4);
  return absl::StrCat(file, compressed);
}

// Where pixel (0, 0) of a stored image belongs in the upright one, and how far it is to the next row's and column's.
struct Placement {
  int64_t first;
  int64_t row;
  int64_t column;
};

Placement PlacementOf(const TiffKind& kind) {
  const auto [height, width] = kind.size;
  switch (kind.orientation) {
    case 2:
      return {width - 1, width, -1};
    case 3:
      return {height * width - 1, -width, -1};
    case 4:
      return {(height - 1) * width, -width, 1};
    case 5:
      return {0, 1, height};
    case 6:
      return {height - 1, -1, height};
    case 7:
      return {height * width - 1, -1, -height};
    case 8:
      return {(width - 1) * height, 1, -height};
  }
  return {0, width, 1};
}

ImageSize UprightSize(const TiffKind& kind) {
  return kind.orientation < 5 ? kind.size : ImageSize{kind.size.width, kind.size.height};
}

}  // namespace

absl::StatusOr<ImageSize> TiffDecoder::Open(absl::string_view bytes) {
  SilenceLeptonica();
  bytes_ = bytes;
  LOCKSTEP_ASSIGN_OR_RETURN(const TiffDirectory directory, TiffDirectory::Read(bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(kind_, KindOf(directory));
  upright_ = kind_.is_libtiffs ? directory.WithoutOrientation() : "";
  palette_ = directory.Values(TiffTag::kPalette);
  if (kind_.photometric == kTiffPalette && static_cast<int64_t>(palette_.size()) < 3 << kind_.bits) {
    return absl::DataLossError(absl::StrCat("expected a palette of ", 3 << kind_.bits,
                                            " numbers in a TIFF file, found ", palette_.size(), ": it is damaged"));
  }
  offsets_ = directory.Values(kind_.is_tiled ? TiffTag::kTileOffsets : TiffTag::kStripOffsets);
  sizes_ = directory.Values(kind_.is_tiled ? TiffTag::kTileSizes : TiffTag::kStripSizes);
  const int64_t blocks = kind_.planes * kind_.blocks_across() * kind_.blocks_down();
  const auto found =
      static_cast<int64_t>(kind_.is_compressed() ? std::min(offsets_.size(), sizes_.size()) : offsets_.size());
  if (found < blocks) {
    return absl::DataLossError(absl::StrCat("expected ", blocks, " strips or tiles in a TIFF file, found ", found,
                                            ": it is damaged or truncated"));
  }
  return UprightSize(kind_);
}

absl::StatusOr<ImageView> TiffDecoder::Decode() {
  const ImageSize size = UprightSize(kind_);
  pixels_ = buffer_.Reserve(3 * size.height * size.width);
  LOCKSTEP_RETURN_IF_ERROR(kind_.is_libtiffs ? DecodeWhole() : DecodeBlocks());
  return ImageView{pixels_, 3 * size.width, {0, 0, size.height, size.width}};
}

absl::Status TiffDecoder::DecodeWhole() {
  PixPointer image = ReadPix(upright_);
  if (!image || pixGetHeight(image.get()) != kind_.size.height || pixGetWidth(image.get()) != kind_.size.width)
    return Damaged();
  image = ToRgb(std::move(image));
  if (!image) return absl::ResourceExhaustedError("Leptonica: no memory to convert an image to RGB");
  uint8_t* const row = row_.Reserve(3 * kind_.size.width);
  for (int64_t y = 0; y < kind_.size.height; ++y) {
    CopyRgbRow(image.get(), y, row);
    Place(y, 0, kind_.size.width, row);
  }
  return absl::OkStatus();
}

absl::Status TiffDecoder::DecodeBlocks() {
  int64_t number = 0;
  for (int64_t top = 0; top < kind_.size.height; top += kind_.block.height) {
    for (int64_t left = 0; left < kind_.size.width; left += kind_.block.width)
      LOCKSTEP_RETURN_IF_ERROR(DecodeBlock(top, left, number++));
  }
  return absl::OkStatus();
}

absl::Status TiffDecoder::DecodeBlock(int64_t top, int64_t left, int64_t number) {
  const int64_t height = std::min(kind_.block.height, kind_.size.height - top);
  const int64_t width = std::min(kind_.block.width, kind_.size.width - left);
  const int64_t rows = kind_.is_tiled ? kind_.block.height : height;
  const int64_t stride = kind_.planes * kind_.row_bytes();
  uint8_t* const block = block_.Reserve(rows * stride);
  if (kind_.planes == 1) {
    LOCKSTEP_RETURN_IF_ERROR(ReadBlock(number, rows, block));
  } else {
    uint8_t* const plane = plane_.Reserve(rows * kind_.row_bytes());
    for (int64_t i = 0; i < kind_.planes; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(ReadBlock(i * kind_.blocks_across() * kind_.blocks_down() + number, rows, plane));
      for (int64_t at = 0; at < rows * kind_.row_bytes(); ++at) block[at * kind_.planes + i] = plane[at];
    }
  }
  uint8_t* const row = row_.Reserve(3 * width);
  for (int64_t y = 0; y < height; ++y) {
    TiffRowToRgb(kind_, palette_, block + y * stride, width, row);
    Place(top + y, left, width, row);
  }
  return absl::OkStatus();
}

absl::Status TiffDecoder::ReadBlock(int64_t number, int64_t rows, uint8_t* out) {
  const auto offset = static_cast<size_t>(offsets_[number]);
  const auto size = static_cast<size_t>(kind_.is_compressed() ? sizes_[number] : rows * kind_.row_bytes());
  if (offset > bytes_.size() || size > bytes_.size() - offset) {
    return absl::DataLossError(absl::StrCat("expected ", size, " bytes of a TIFF image at byte ", offset,
                                            ", found the end of the file at byte ", bytes_.size(),
                                            ": it is truncated"));
  }
  const absl::string_view stored = bytes_.substr(offset, size);
  if (kind_.is_compressed()) return Inflate(stored, rows, out);
  std::memcpy(out, stored.data(), stored.size());
  return absl::OkStatus();
}

absl::Status TiffDecoder::Inflate(absl::string_view compressed, int64_t rows, uint8_t* out) {
  const int64_t width = kind_.row_bytes();
  const PixPointer image = ReadPix(AsGrey(compressed, kind_.compression, width, rows));
  if (!image || pixGetHeight(image.get()) != rows || pixGetWidth(image.get()) != width ||
      pixGetDepth(image.get()) != 8 || pixEndianByteSwap(image.get()) != 0) {
    return Damaged();
  }
  for (int64_t y = 0; y < rows; ++y)
    std::memcpy(out + y * width, pixGetData(image.get()) + y * pixGetWpl(image.get()), width);
  if (kind_.has_differences) UndoDifferences(kind_, rows, out);
  return absl::OkStatus();
}

void TiffDecoder::Place(int64_t y, int64_t left, int64_t width, const uint8_t* rgb) {
  const Placement placement = PlacementOf(kind_);
  uint8_t* out = pixels_ + 3 * (placement.first + y * placement.row + left * placement.column);
  for (int64_t x = 0; x < width; ++x, out += 3 * placement.column, rgb += 3) std::copy_n(rgb, 3, out);
}

}  // namespace lockstep::data::internal
