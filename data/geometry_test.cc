#include "lockstep/data/geometry.h"

#include <array>
#include <cstdint>
#include <functional>

#include "gtest/gtest.h"
#include "lockstep/data/image.h"

namespace lockstep::data {
namespace {

using Numbers = std::array<int64_t, 4>;

Numbers Values(const Rectangle& rectangle) {
  return {rectangle.top, rectangle.left, rectangle.height, rectangle.width};
}

TEST(Geometry, OfAWholeImageNeedsAllOfIt) {
  const Geometry geometry = WholeImage({375, 500});
  EXPECT_EQ(Values(geometry.window), (Numbers{0, 0, 375, 500}));
  EXPECT_EQ(Values(NeededSource(geometry)), (Numbers{0, 0, 375, 500}));
}

// Pixel 10 of a line shrunk to a third is made of those within three pixels of its centre, 31.5: 29 to 34.
TEST(Geometry, NeedsWhatTheFilterReachesFromTheWindow) {
  const Geometry geometry = {{100, 200, 90, 90}, {30, 30}, {10, 0, 1, 30}, false};
  EXPECT_EQ(Values(NeededSource(geometry)), (Numbers{129, 200, 6, 90}));
}

TEST(Geometry, NeedsNothingForWhatIsBlack) {
  Geometry geometry = {{0, 0, 10, 10}, {10, 10}, {-3, -4, 16, 18}, false};
  EXPECT_EQ(Values(VisibleWindow(geometry)), (Numbers{0, 0, 10, 10}));
  geometry.window = {10, 0, 5, 5};
  EXPECT_EQ(Values(VisibleWindow(geometry)), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(Values(NeededSource(geometry)), (Numbers{0, 0, 0, 0}));
}

TEST(Geometry, ShrinksItsSourceToTheNearestPixelsAndKeepsTheRest) {
  const Geometry shrunk = Shrunk({{5, 8, 30, 41}, {7, 10}, {1, 2, 3, 4}, true}, 4);
  EXPECT_EQ(Values(shrunk.source), (Numbers{1, 2, 8, 10}));  // [1.25, 8.75) of [2, 12.25)
  EXPECT_EQ(shrunk.resized.height, 7);
  EXPECT_EQ(shrunk.resized.width, 10);
  EXPECT_EQ(Values(shrunk.window), (Numbers{1, 2, 3, 4}));
  EXPECT_TRUE(shrunk.mirrored);
}

Rectangle ShrunkSource(const Rectangle& source, int64_t denominator) {
  Geometry geometry;
  geometry.source = source;
  return Shrunk(geometry, denominator).source;
}

TEST(Geometry, ShrunkByOneIsTheSame) { EXPECT_EQ(Values(ShrunkSource({5, 8, 30, 41}, 1)), (Numbers{5, 8, 30, 41})); }

// Every range of a line of 35 pixels.
void ForEachRange(const std::function<void(int64_t first, int64_t size)>& check) {
  for (int64_t first = 0; first < 35; ++first)
    for (int64_t size = 1; first + size <= 35; ++size) check(first, size);
}

TEST(Geometry, ShrunkHasPixelsInsideOfTheSmallerImage) {
  for (const int64_t denominator : {2, 4, 8}) {
    const int64_t end = (35 + denominator - 1) / denominator;
    ForEachRange([&](int64_t first, int64_t size) {
      const Rectangle source = ShrunkSource({first, 0, size, 1}, denominator);
      EXPECT_GE(source.top, 0);
      EXPECT_GE(source.height, 1);
      EXPECT_LE(source.top + source.height, end);
      EXPECT_EQ(Values(source), (Numbers{source.top, 0, source.height, 1}));
    });
  }
}

TEST(Geometry, ShrunkKeepsAsManyPixelsAsItHasTimesTheDenominator) {
  for (const int64_t denominator : {2, 4, 8}) {
    ForEachRange([&](int64_t first, int64_t size) {
      EXPECT_GE(ShrunkSource({0, first, 1, size}, denominator).width, size / denominator);
    });
  }
}

}  // namespace
}  // namespace lockstep::data
