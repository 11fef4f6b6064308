#include "lockstep/data/internal/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/data/geometry.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/resample_kernels.h"

namespace lockstep::data::internal {
namespace {

using Random = std::mt19937;

// Three bytes a pixel, row after row.
struct Image {
  Image(int64_t height, int64_t width) : size{height, width}, bytes(height * width * 3) {}
  uint8_t& at(int64_t y, int64_t x, int64_t channel) { return bytes[(y * size.width + x) * 3 + channel]; }
  uint8_t at(int64_t y, int64_t x, int64_t channel) const { return bytes[(y * size.width + x) * 3 + channel]; }

  ImageSize size;
  std::vector<uint8_t> bytes;
};

int64_t Between(int64_t first, int64_t last, Random& random) {
  return std::uniform_int_distribution<int64_t>(first, last)(random);
}

Image Noise(int64_t height, int64_t width, Random& random) {
  Image image(height, width);
  for (uint8_t& byte : image.bytes) byte = static_cast<uint8_t>(Between(0, 255, random));
  return image;
}

Image Crop(const Image& image, const Rectangle& part) {
  Image crop(part.height, part.width);
  for (int64_t y = 0; y < part.height; ++y)
    for (int64_t x = 0; x < part.width; ++x)
      for (int64_t c = 0; c < 3; ++c) crop.at(y, x, c) = image.at(part.top + y, part.left + x, c);
  return crop;
}

// Pixel `index` of a line of `source` pixels resized to `resized`: a triangle over the whole line.
template <typename PixelAt>
uint8_t Filtered(int64_t source, int64_t resized, int64_t index, const PixelAt& pixel_at) {
  const double scale = static_cast<double>(source) / resized, support = std::max(scale, 1.0);
  const double center = (index + 0.5) * scale;
  const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
  const int64_t end = std::min<int64_t>(source, static_cast<int64_t>(center + support + 0.5));
  const auto weight = [&](int64_t i) { return std::max(0.0, 1 - std::abs((i - center + 0.5) * (1 / support))); };
  double total = 0;
  for (int64_t i = first; i < end; ++i) total += weight(i);
  int64_t sum = 1 << 21;
  for (int64_t i = first; i < end; ++i) sum += static_cast<int64_t>(weight(i) / total * (1 << 22) + 0.5) * pixel_at(i);
  return static_cast<uint8_t>(std::min<int64_t>(sum >> 22, 255));
}

Image ResizeWidth(const Image& image, int64_t width) {
  Image resized(image.size.height, width);
  for (int64_t y = 0; y < image.size.height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        resized.at(y, x, c) = Filtered(image.size.width, width, x, [&](int64_t i) { return image.at(y, i, c); });
  return resized;
}

Image ResizeHeight(const Image& image, int64_t height) {
  Image resized(height, image.size.width);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < image.size.width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        resized.at(y, x, c) = Filtered(image.size.height, height, y, [&](int64_t i) { return image.at(i, x, c); });
  return resized;
}

Image Mirrored(const Image& image) {
  Image mirrored = image;
  for (int64_t y = 0; y < image.size.height; ++y)
    for (int64_t x = 0; x < image.size.width; ++x)
      for (int64_t c = 0; c < 3; ++c) mirrored.at(y, x, c) = image.at(y, image.size.width - 1 - x, c);
  return mirrored;
}

Image Expected(const Image& image, const Geometry& geometry) {
  Image result = Crop(image, geometry.source);
  const ImageSize from = result.size, to = geometry.resized;
  const bool height_first = from.height > to.height && from.height - to.height > 2 * (from.width - to.width);
  result = height_first ? ResizeWidth(ResizeHeight(result, to.height), to.width)
                        : ResizeHeight(ResizeWidth(result, to.width), to.height);
  result = Crop(result, geometry.window);
  return geometry.mirrored ? Mirrored(result) : result;
}

int64_t AnyLength(Random& random) {
  return Between(1, std::array<int64_t, 3>{4, 30, 90}[Between(0, 2, random)], random);
}

Rectangle AnyPart(ImageSize size, Random& random) {
  const int64_t height = Between(1, size.height, random), width = Between(1, size.width, random);
  return {Between(0, size.height - height, random), Between(0, size.width - width, random), height, width};
}

Geometry AnyGeometry(ImageSize image, Random& random) {
  Geometry geometry;
  geometry.source = AnyPart(image, random);
  geometry.resized = {AnyLength(random), AnyLength(random)};
  geometry.window = AnyPart(geometry.resized, random);
  geometry.mirrored = Between(0, 1, random) == 1;
  return geometry;
}

// Only what is needed is there, and nothing after its last byte.
template <typename T>
std::vector<T> Resampled(const Image& image, const Geometry& geometry, ResampleOutput output,
                         const ResampleKernels& kernels) {
  const Rectangle needed = NeededSource(geometry);
  const Image part = Crop(image, needed);
  const Rectangle& window = geometry.window;
  std::vector<T> result(window.height * window.width * 3);
  output.data = result.data();
  output.row_stride = output.planar ? window.width : 3 * window.width;
  output.plane_stride = window.height * window.width;
  Resample({part.bytes.data(), needed.width * 3, needed}, geometry, output, kernels);
  return result;
}

ResampleOutput Bytes(bool planar) {
  ResampleOutput output;
  output.planar = planar;
  return output;
}

std::vector<uint8_t> Planes(const Image& image) {
  std::vector<uint8_t> planes;
  for (int64_t c = 0; c < 3; ++c)
    for (size_t i = c; i < image.bytes.size(); i += 3) planes.push_back(image.bytes[i]);
  return planes;
}

TEST(Resample, IsTheFormulaToTheBitOnEveryProcessor) {
  Random random(1);
  for (int i = 0; i < 600; ++i) {
    const Image image = Noise(AnyLength(random), AnyLength(random), random);
    const Geometry geometry = AnyGeometry(image.size, random);
    const Image expected = Expected(image, geometry);
    for (const ResampleKernels* kernels : {&PortableResampleKernels(), &FastestResampleKernels()}) {
      EXPECT_EQ(Resampled<uint8_t>(image, geometry, Bytes(false), *kernels), expected.bytes) << i;
      EXPECT_EQ(Resampled<uint8_t>(image, geometry, Bytes(true), *kernels), Planes(expected)) << i;
    }
  }
}

TEST(Resample, LeavesPixelsThatAreNotResizedAsTheyAre) {
  Random random(2);
  const Image image = Noise(20, 30, random);
  const Geometry geometry = {{2, 3, 11, 19}, {11, 19}, {0, 0, 11, 19}, false};
  EXPECT_EQ(Resampled<uint8_t>(image, geometry, Bytes(false), FastestResampleKernels()),
            Crop(image, geometry.source).bytes);
}

TEST(Resample, NormalizesEachChannelByItsOwnMeanAndStd) {
  Random random(3);
  ResampleOutput output;
  output.floats = true;
  output.mean = {0.485f, 0.456f, 0.406f};
  output.std = {0.229f, 0.224f, 0.225f};
  for (int64_t width : {1, 7, 8, 23, 24, 61}) {
    const Image image = Noise(5, width, random);
    const Geometry geometry = WholeImage(image.size);
    for (const ResampleKernels* kernels : {&PortableResampleKernels(), &FastestResampleKernels()}) {
      output.planar = false;
      const std::vector<float> whole = Resampled<float>(image, geometry, output, *kernels);
      output.planar = true;
      const std::vector<float> planes = Resampled<float>(image, geometry, output, *kernels);
      for (size_t i = 0; i < whole.size(); ++i) {
        const int64_t channel = i % 3;
        ASSERT_EQ(whole[i], (image.bytes[i] / 255.0f - output.mean[channel]) / output.std[channel]);
        ASSERT_EQ(planes[channel * 5 * width + i / 3], whole[i]);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::data::internal
