#include "lockstep/elastic/internal/healing_plan.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::elastic::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr StepPart kNothing = StepPart::kNothing, kGradients = StepPart::kGradients, kOwnShards = StepPart::kOwnShards;

Healing Plan(const std::vector<Progress>& ranks) { return PlanHealing(ranks); }

TEST(PlanHealing, TheRanksThatAreAheadGiveTheirState) {
  const Healing healing = Plan({{4}, {5}, {0}, {5}, {kNoState}});
  EXPECT_EQ(healing.newest, 5);
  EXPECT_THAT(healing.sources, ElementsAre(1, 3));
  EXPECT_THAT(healing.receivers, ElementsAre(0, 2, 4));
  EXPECT_FALSE(healing.spreads);
}

TEST(PlanHealing, NobodyHasAState) { EXPECT_THAT(Plan({{kNoState}, {kNoState}}).sources, IsEmpty()); }

// No rank knows whether rank 0, which has died, had all gradients, and it does not matter.
TEST(PlanHealing, RepeatsTheStepIfNobodyHasSteppedAShard) {
  const Healing healing = Plan({{5, kGradients}, {5}, {5, kGradients}});
  EXPECT_EQ(healing.newest, 5);
  EXPECT_THAT(healing.receivers, IsEmpty());
  EXPECT_FALSE(healing.spreads);
}

TEST(PlanHealing, TakesTheStepIfOneRankHasSteppedItsShards) {
  const Healing healing = Plan({{5, kGradients}, {5, kOwnShards}, {5, kGradients}, {0}});
  EXPECT_EQ(healing.newest, 6);
  EXPECT_THAT(healing.sources, ElementsAre(0, 1, 2));
  EXPECT_THAT(healing.receivers, ElementsAre(3));
  EXPECT_TRUE(healing.spreads);
}

// One rank has got all parameters of the step, and may have the gradients of the next one.
TEST(PlanHealing, TakesTheStepIfOneRankHasCompletedIt) {
  for (const StepPart part : {kNothing, kGradients}) {
    const Healing healing = Plan({{6, part}, {5, kOwnShards}, {5, kGradients}});
    EXPECT_EQ(healing.newest, 6);
    EXPECT_THAT(healing.sources, ElementsAre(0, 1, 2));
    EXPECT_TRUE(healing.spreads);
  }
}

}  // namespace
}  // namespace lockstep::elastic::internal
