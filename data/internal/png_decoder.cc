#include "lockstep/data/internal/png_decoder.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::data::internal {
namespace {

constexpr absl::string_view kSignature = "\x89PNG\r\n\x1a\n";

// Converts two bytes of grey to three bytes of colours. It works in place and therefore from the end. Like Pillow, it
// cuts values off at 255 instead of scaling them.
void ClippedGreyToRgb(uint8_t* row, int64_t width) {
  for (int64_t x = width - 1; x >= 0; --x) {
    const uint8_t grey = row[2 * x] == 0 ? row[2 * x + 1] : 255;
    std::fill_n(row + 3 * x, 3, grey);
  }
}

}  // namespace

bool PngDecoder::Recognises(absl::string_view bytes) { return absl::StartsWith(bytes, kSignature); }

absl::StatusOr<ImageSize> PngDecoder::Open(absl::string_view bytes) {
  Close();
  rest_ = bytes;
  png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, Land, [](png_structp, png_const_charp) {});
  if (!png_) return absl::ResourceExhaustedError("libpng could not start");
  LOCKSTEP_RETURN_IF_ERROR(Guarded(&PngDecoder::ReadHeader));
  return ImageSize{png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
}

absl::StatusOr<ImageView> PngDecoder::Decode() {
  const ImageSize size = {png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
  const int64_t stride = 3 * size.width;
  uint8_t* const pixels = buffer_.Reserve(size.height * stride);
  rows_.resize(size.height);
  for (int64_t y = 0; y < size.height; ++y) rows_[y] = pixels + y * stride;
  LOCKSTEP_RETURN_IF_ERROR(Guarded(&PngDecoder::ReadRows));
  return ImageView{pixels, stride, {0, 0, size.height, size.width}};
}

absl::Status PngDecoder::Guarded(void (PngDecoder::*step)()) {
  if (setjmp(landing_) != 0) return absl::DataLossError(absl::StrCat("libpng: ", message_));
  (this->*step)();
  return absl::OkStatus();
}

void PngDecoder::Land(png_structp png, png_const_charp message) {
  PngDecoder* const decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(decoder->message_, sizeof(decoder->message_), "%s", message);
  std::longjmp(decoder->landing_, 1);
}

void PngDecoder::ReadBytes(png_structp png, png_bytep to, size_t count) {
  absl::string_view& rest = static_cast<PngDecoder*>(png_get_io_ptr(png))->rest_;
  if (count > rest.size()) Land(png, "expected more data, found the end of the file: it is truncated");
  std::memcpy(to, rest.data(), count);
  rest.remove_prefix(count);
}

void PngDecoder::ReadHeader() {
  info_ = png_create_info_struct(png_);
  if (!info_) Land(png_, "no memory for a header");
  png_set_read_fn(png_, this, ReadBytes);
  png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);  // By default an optional chunk is only warned of.
  png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // Optional chunks do not change the pixels.
  png_read_info(png_, info_);
}

void PngDecoder::Configure() {
  if (png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) == 16) return;
  png_set_palette_to_rgb(png_);
  png_set_expand_gray_1_2_4_to_8(png_);
  png_set_strip_16(png_);
  png_set_strip_alpha(png_);
  png_set_gray_to_rgb(png_);
}

void PngDecoder::ReadRows() {
  Configure();
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  png_read_image(png_, rows_.data());
  if (png_get_bit_depth(png_, info_) != 16) return;
  for (png_bytep row : rows_) ClippedGreyToRgb(row, png_get_image_width(png_, info_));
}

void PngDecoder::Close() { png_destroy_read_struct(&png_, &info_, nullptr); }

}  // namespace lockstep::data::internal
