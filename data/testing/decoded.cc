#include "lockstep/data/testing/decoded.h"

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace lockstep::data::testing {

Rectangle Whole(const ImageSize& size) { return {0, 0, size.height, size.width}; }

std::vector<uint8_t> Pixels(ImageDecoder& decoder, const std::string& file, const Rectangle& wanted,
                            int64_t denominator) {
  EXPECT_EQ(decoder.Open(file).status(), absl::OkStatus());
  EXPECT_EQ(decoder.Shrink(denominator).status(), absl::OkStatus());
  const absl::StatusOr<ImageView> view = decoder.Decode(wanted);
  EXPECT_EQ(view.status(), absl::OkStatus());
  std::vector<uint8_t> pixels;
  if (!view.ok()) return pixels;
  for (int64_t y = 0; y < wanted.height; ++y) {
    const uint8_t* row = view->pixels + (wanted.top + y - view->covers.top) * view->stride;
    row += (wanted.left - view->covers.left) * 3;
    pixels.insert(pixels.end(), row, row + wanted.width * 3);
  }
  return pixels;
}

absl::Status ErrorOf(const std::string& file, const ImageDecoderOptions& options) {
  ImageDecoder decoder(options);
  const absl::StatusOr<ImageSize> size = decoder.Open(file);
  return size.ok() ? decoder.Decode(Whole(*size)).status() : size.status();
}

}  // namespace lockstep::data::testing
