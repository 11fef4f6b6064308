#include "lockstep/examples/ranks/alike.h"

#include <ATen/ops/full.h>

#include <cmath>

#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::examples {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;

TEST(Alike, SameBitsAreAlike) {
  EXPECT_TRUE(RunRanksOk(3, [](ProcessGroup& group) {
                EXPECT_TRUE(CheckAlike({at::full({2, 2}, 0.1), at::full({3}, 0.2)}, group).ok());
              }).ok());
}

TEST(Alike, ARankThatDiffersInTheLastBitIsNamed) {
  const auto statuses = RunRanks(3, [](ProcessGroup& group) {
    const float value = group.rank() == 2 ? std::nextafter(1.0f, 2.0f) : 1.0f;
    return CheckAlike({at::full({2}, value)}, group);
  });
  EXPECT_EQ(statuses[0].message(), "its parameters are other than those of rank 2");
  EXPECT_EQ(statuses[1].message(), "its parameters are other than those of rank 2");
  EXPECT_EQ(statuses[2].message(), "its parameters are other than those of rank 0");
}

TEST(Alike, TheLargestDifferenceIsThatOfAnyTensor) {
  EXPECT_EQ(MaxDifference({at::full({2}, 1), at::full({1}, 5)}, {at::full({2}, 2), at::full({1}, 2)}), 3);
  EXPECT_TRUE(std::isnan(MaxDifference({at::full({2}, std::nanf(""))}, {at::full({2}, 2.0)})));
}

}  // namespace
}  // namespace lockstep::examples
