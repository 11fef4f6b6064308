#include "lockstep/data/internal/bmp_decoder.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::data::internal {
namespace {

constexpr size_t kFileHeader = 14;  // before the header that begins with its own size
constexpr uint32_t kOs2Header = 12;
constexpr uint32_t kHeaderWithAlpha = 56;
constexpr uint32_t kUncompressed = 0;
constexpr uint32_t kMasks = 3;
constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();

bool IsHeaderSize(uint32_t size) {
  constexpr uint32_t kSizes[] = {kOs2Header, 40, 52, kHeaderWithAlpha, 64, 108, 124};
  return std::find(std::begin(kSizes), std::end(kSizes), size) != std::end(kSizes);
}

// The byte of a pixel that `mask` is all of; -1: it is no whole byte.
int ByteOf(uint32_t mask) {
  for (int byte = 0; byte < 4; ++byte) {
    if (mask == uint32_t{0xff} << 8 * byte) return byte;
  }
  return -1;
}

// `value` of `bits` bits, scaled to 8 as in Pillow.
uint8_t Scaled(uint32_t value, int bits) {
  const uint32_t most = (1u << bits) - 1;
  return (value & most) * 255 / most;
}

}  // namespace

bool BmpDecoder::Recognises(absl::string_view bytes) { return absl::StartsWith(bytes, "BM"); }

uint32_t BmpDecoder::Number(size_t at, int width) const {
  uint32_t value = 0;
  for (int i = 0; i < width; ++i) value |= uint32_t{static_cast<uint8_t>(bytes_[at + i])} << 8 * i;
  return value;
}

absl::Status BmpDecoder::Unsupported() const {
  return absl::InvalidArgumentError(
      absl::StrCat("expected BMP of a kind that is read as Pillow reads it, found one of ", bits_,
                   " bits a pixel with compression ", compression_, " and a header of ", header_size_, " bytes"));
}

absl::Status BmpDecoder::Truncated() const {
  return absl::DataLossError(absl::StrCat("expected more BMP data, found the end of the file after ", bytes_.size(),
                                          " bytes: it is truncated"));
}

absl::StatusOr<ImageSize> BmpDecoder::Open(absl::string_view bytes) {
  bytes_ = bytes;
  bits_ = 0;
  compression_ = kUncompressed;
  LOCKSTEP_RETURN_IF_ERROR(ReadSize());
  LOCKSTEP_RETURN_IF_ERROR(ReadKind());
  LOCKSTEP_RETURN_IF_ERROR(ReadPlaces());
  return size_;
}

absl::Status BmpDecoder::ReadSize() {
  if (bytes_.size() < kFileHeader + 4) return Truncated();
  header_size_ = Number(kFileHeader, 4);
  if (!IsHeaderSize(header_size_)) return Unsupported();
  if (bytes_.size() < kFileHeader + header_size_) return Truncated();
  const bool is_os2 = header_size_ == kOs2Header;
  size_ = is_os2 ? ImageSize{Number(20, 2), Number(18, 2)} : ImageSize{Number(22, 4), Number(18, 4)};
  is_top_down_ = !is_os2 && static_cast<uint8_t>(bytes_[25]) == 0xff;
  if (is_top_down_) size_.height = (int64_t{1} << 32) - size_.height;
  for (const int64_t length : {size_.height, size_.width}) {
    if (length > 0 && length <= kLongest) continue;
    return absl::DataLossError(absl::StrCat("expected a BMP image to have from 1 to ", kLongest,
                                            " rows and columns, found ", length, ": it is damaged"));
  }
  return absl::OkStatus();
}

absl::Status BmpDecoder::ReadKind() {
  const bool is_os2 = header_size_ == kOs2Header;
  bits_ = Number(is_os2 ? 24 : 28, 2);
  compression_ = is_os2 ? kUncompressed : Number(30, 4);
  green_bits_ = 5;
  const int blue_green_red[] = {2, 1, 0};
  std::copy_n(blue_green_red, 3, bytes_of_color_);
  const bool is_known = bits_ == 1 || bits_ == 4 || bits_ == 8 || bits_ == 16 || bits_ == 24 || bits_ == 32;
  if (is_known && compression_ == kUncompressed) return absl::OkStatus();
  return is_known && bits_ > 8 && compression_ == kMasks ? ReadMasks() : Unsupported();
}

absl::Status BmpDecoder::ReadMasks() {
  constexpr size_t kAt = 54;
  const bool has_alpha = header_size_ >= kHeaderWithAlpha;
  if (bytes_.size() < kAt + 12) return Truncated();
  const uint32_t masks[] = {Number(kAt, 4), Number(kAt + 4, 4), Number(kAt + 8, 4)};
  const uint32_t alpha = has_alpha ? Number(kAt + 12, 4) : 0;
  if (bits_ == 16) {
    green_bits_ = masks[0] == 0xf800 ? 6 : 5;
    const bool is_565 = masks[0] == 0xf800 && masks[1] == 0x7e0 && masks[2] == 0x1f;
    const bool is_555 = masks[0] == 0x7c00 && masks[1] == 0x3e0 && masks[2] == 0x1f;
    return is_565 || is_555 ? absl::OkStatus() : Unsupported();
  }
  if (masks[0] == 0 && masks[1] == 0 && masks[2] == 0 && alpha == 0 && bits_ == 32) return absl::OkStatus();
  for (int c = 0; c < 3; ++c) bytes_of_color_[c] = ByteOf(masks[c]);
  const int* const at = bytes_of_color_;
  const bool is_bgr = at[0] == 2 && at[1] == 1 && at[2] == 0;
  if (bits_ == 24) return is_bgr ? absl::OkStatus() : Unsupported();
  const bool are_bytes = *std::min_element(at, at + 3) >= 0 && (alpha == 0 || ByteOf(alpha) >= 0);
  const bool differ = at[0] != at[1] && at[0] != at[2] && at[1] != at[2];
  return are_bytes && differ ? absl::OkStatus() : Unsupported();
}

// If a file's header says that its pixels begin where its palette does, Pillow takes the palette's size into account.
absl::Status BmpDecoder::ReadPlaces() {
  constexpr size_t kMostColors = 65536;
  const bool is_os2 = header_size_ == kOs2Header;
  palette_ = kFileHeader + header_size_;
  palette_step_ = is_os2 ? 3 : 4;
  colors_ = bits_ <= 8 ? (is_os2 ? 0 : Number(46, 4)) : 0;
  if (colors_ == 0 && bits_ <= 8) colors_ = size_t{1} << bits_;
  if (colors_ > kMostColors) return Unsupported();
  const size_t behind = palette_ + palette_step_ * colors_;
  pixels_ = Number(10, 4);
  if (pixels_ == 0 || (pixels_ == palette_ && bits_ <= 8)) pixels_ = behind;
  if (behind > bytes_.size() || pixels_ > bytes_.size()) return Truncated();
  return absl::OkStatus();
}

absl::StatusOr<ImageView> BmpDecoder::Decode() {
  const int64_t row_bytes = (size_.width * bits_ + 7) / 8;
  const int64_t stride = (size_.width * bits_ + 31) / 32 * 4;
  if (static_cast<int64_t>(bytes_.size() - pixels_) < (size_.height - 1) * stride + row_bytes) return Truncated();
  uint8_t* const pixels = buffer_.Reserve(3 * size_.height * size_.width);
  const auto* const stored = reinterpret_cast<const uint8_t*>(bytes_.data()) + pixels_;
  for (int64_t y = 0; y < size_.height; ++y) {
    RowToRgb(stored + (is_top_down_ ? y : size_.height - 1 - y) * stride, pixels + 3 * size_.width * y);
  }
  return ImageView{pixels, 3 * size_.width, {0, 0, size_.height, size_.width}};
}

void BmpDecoder::RowToRgb(const uint8_t* row, uint8_t* out) const {
  if (bits_ <= 8) return PaletteRowToRgb(row, out);
  if (bits_ == 16) return ShortRowToRgb(row, out);
  for (int64_t x = 0; x < size_.width; ++x, row += bits_ / 8) {
    for (const int at : bytes_of_color_) *out++ = row[at];
  }
}

// A colour beyond the palette is black.
void BmpDecoder::PaletteRowToRgb(const uint8_t* row, uint8_t* out) const {
  for (int64_t x = 0; x < size_.width; ++x) {
    const int64_t bit = x * bits_;
    const size_t entry = row[bit / 8] >> (8 - bits_ - bit % 8) & ((1 << bits_) - 1);
    for (const int at : {2, 1, 0}) *out++ = entry < colors_ ? bytes_[palette_ + palette_step_ * entry + at] : 0;
  }
}

void BmpDecoder::ShortRowToRgb(const uint8_t* row, uint8_t* out) const {
  for (int64_t x = 0; x < size_.width; ++x, row += 2) {
    const uint32_t pixel = row[0] | row[1] << 8;
    *out++ = Scaled(pixel >> (5 + green_bits_), 5);
    *out++ = Scaled(pixel >> 5, green_bits_);
    *out++ = Scaled(pixel, 5);
  }
}

}  // namespace lockstep::data::internal
