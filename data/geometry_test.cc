#include "lockstep/data/geometry.h"

#include <array>
#include <cstdint>

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

}  // namespace
}  // namespace lockstep::data
