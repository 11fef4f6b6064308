#include "lockstep/comm/internal/stall_lines.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::comm::internal {
namespace {

using ::testing::ElementsAre;

// The seconds of the words that become lines.
std::vector<int> Lines(const std::vector<int>& seconds) {
  StallLines lines(absl::Seconds(30));
  std::vector<int> due;
  for (const int lasted : seconds) {
    if (lines.IsDue(absl::Seconds(lasted))) due.push_back(lasted);
  }
  return due;
}

TEST(StallLines, AreOneForEachDoublingOfTheTime) {
  std::vector<int> seconds;
  for (int lasted = 32; lasted < 1000; lasted += 10) seconds.push_back(lasted);
  EXPECT_THAT(Lines(seconds), ElementsAre(32, 62, 122, 242, 482, 962));
  EXPECT_THAT(Lines({32, 42, 300, 310, 490}), ElementsAre(32, 300, 490));
}

TEST(StallLines, BeginAnewWithAnotherCall) {
  EXPECT_THAT(Lines({32, 62, 72, 31, 41, 61}), ElementsAre(32, 62, 31, 61));
}

}  // namespace
}  // namespace lockstep::comm::internal
