#include "lockstep/data/internal/webp_decoder.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "lockstep/data/internal/leptonica.h"

namespace lockstep::data::internal {
namespace {

absl::Status Damaged() { return absl::DataLossError("Leptonica: the WebP data is damaged or truncated"); }

// Returns whether the first chunk says that the file is an animation.
bool IsAnimation(absl::string_view bytes) {
  constexpr size_t kFlags = 20;
  constexpr int kAnimation = 2;
  return bytes.size() > kFlags && bytes.substr(12, 4) == "VP8X" && (bytes[kFlags] & kAnimation) != 0;
}

}  // namespace

bool WebpDecoder::Recognises(absl::string_view bytes) {
  return bytes.size() >= 12 && absl::StartsWith(bytes, "RIFF") && bytes.substr(8, 4) == "WEBP";
}

absl::StatusOr<ImageSize> WebpDecoder::Open(absl::string_view bytes) {
  SilenceLeptonica();
  bytes_ = bytes;
  if (IsAnimation(bytes)) {
    return absl::InvalidArgumentError("expected WebP of a kind that is read as Pillow reads it, found an animation");
  }
  int format = 0;
  int width = 0;
  int height = 0;
  int bits = 0;
  int samples = 0;
  int has_palette = 0;
  if (pixReadHeaderMem(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &format, &width, &height, &bits,
                       &samples, &has_palette) != 0 ||
      width <= 0 || height <= 0) {
    return Damaged();
  }
  size_ = {height, width};
  return size_;
}

absl::StatusOr<ImageView> WebpDecoder::Decode() {
  PixPointer image = ReadPix(bytes_);
  if (!image || pixGetHeight(image.get()) != size_.height || pixGetWidth(image.get()) != size_.width) return Damaged();
  image = ToRgb(std::move(image));
  if (!image) return absl::ResourceExhaustedError("Leptonica: no memory to convert an image to RGB");
  uint8_t* const pixels = buffer_.Reserve(3 * size_.height * size_.width);
  for (int64_t y = 0; y < size_.height; ++y) CopyRgbRow(image.get(), y, pixels + 3 * size_.width * y);
  return ImageView{pixels, 3 * size_.width, {0, 0, size_.height, size_.width}};
}

}  // namespace lockstep::data::internal
