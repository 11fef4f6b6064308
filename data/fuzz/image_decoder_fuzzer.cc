// Decodes any bytes as an image file, at any scale. The decoded pixels must cover the wanted part, be readable memory,
// and not depend on the wanted part.

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_decoder.h"
#include "lockstep/tools/fuzz/require.h"

namespace lockstep::data {
namespace {

using fuzz::Require;

constexpr int64_t kMaxPixels = 1 << 16;

const uint8_t* Pixel(const ImageView& view, int64_t y, int64_t x) {
  return view.pixels + (y - view.covers.top) * view.stride + (x - view.covers.left) * 3;
}

void CheckCovers(const ImageView& view, const ImageSize& size, const Rectangle& part) {
  const Rectangle& covers = view.covers;
  Require(covers.top >= 0 && covers.left >= 0 && covers.top <= part.top && covers.left <= part.left, "it begins");
  Require(covers.top + covers.height <= size.height && covers.left + covers.width <= size.width, "it is in the image");
  Require(covers.top + covers.height >= part.top + part.height, "it has the rows");
  Require(covers.left + covers.width >= part.left + part.width, "it has the columns");
  Require(view.stride >= covers.width * 3, "rows do not overlap");
}

Rectangle PartOf(const ImageSize& size, uint32_t seed) {
  std::minstd_rand random(seed);
  Rectangle part;
  part.height = 1 + random() % size.height;
  part.width = 1 + random() % size.width;
  part.top = random() % (size.height - part.height + 1);
  part.left = random() % (size.width - part.width + 1);
  return part;
}

std::vector<uint8_t> Copy(const ImageView& view, const Rectangle& part) {
  std::vector<uint8_t> pixels;
  for (int64_t y = part.top; y < part.top + part.height; ++y) {
    pixels.insert(pixels.end(), Pixel(view, y, part.left), Pixel(view, y, part.left + part.width));
  }
  return pixels;
}

absl::StatusOr<ImageSize> Open(ImageDecoder& decoder, absl::string_view bytes, int64_t denominator) {
  const absl::StatusOr<ImageSize> size = decoder.Open(bytes);
  if (!size.ok()) return size;
  Require(size->height > 0 && size->width > 0 && size->height * size->width <= kMaxPixels, "the size is within limits");
  const absl::StatusOr<ShrunkImage> image = decoder.Shrink(denominator);
  Require(image.ok() && image->denominator <= denominator, "what is open can be shrunk");
  Require(image->size.height == (size->height + image->denominator - 1) / image->denominator, "so is the height");
  Require(image->size.width == (size->width + image->denominator - 1) / image->denominator, "so is the width");
  return image->size;
}

void Check(absl::string_view bytes) {
  ImageDecoderOptions options;
  options.max_pixels = kMaxPixels;
  ImageDecoder decoder(options);
  const uint32_t seed = std::accumulate(bytes.begin(), bytes.end(), uint32_t{0});
  const int64_t denominator = int64_t{1} << seed % 4;
  const absl::StatusOr<ImageSize> size = Open(decoder, bytes, denominator);
  if (!size.ok()) return;
  const Rectangle part = PartOf(*size, seed / 4);
  absl::StatusOr<ImageView> view = decoder.Decode(part);
  if (!view.ok()) return;
  CheckCovers(*view, *size, part);
  const std::vector<uint8_t> pixels = Copy(*view, part);
  Require(Open(decoder, bytes, denominator).ok(), "it opens again");
  view = decoder.Decode({0, 0, size->height, size->width});
  Require(!view.ok() || Copy(*view, part) == pixels, "a part has the pixels of the whole");
}

}  // namespace
}  // namespace lockstep::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::data::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
