#include "lockstep/checkpoint/manager/retention.h"

#include <algorithm>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Retention, KeepsTheHighestSteps) {
  EXPECT_THAT(StepsToRemove({10, 20, 30, 40}, 40, {.keep_last = 2}), ElementsAre(10, 20));
  EXPECT_THAT(StepsToRemove({10, 20}, 20, {.keep_last = 2}), IsEmpty());
  EXPECT_THAT(StepsToRemove({}, 20, {.keep_last = 2}), IsEmpty());
}

TEST(Retention, KeepsMilestones) {
  EXPECT_THAT(StepsToRemove({0, 10, 15, 20, 25, 30}, 30, {.keep_last = 1, .keep_every = 10}), ElementsAre(15, 25));
}

TEST(Retention, KeepsAllWhereItIsToldTo) {
  EXPECT_THAT(StepsToRemove({1, 2, 3, 4}, 4, {.keep_last = 0}), IsEmpty());
  EXPECT_THAT(StepsToRemove({1, 2, 3, 4}, 4, {.keep_last = 0, .keep_every = 3}), IsEmpty());
}

TEST(Retention, KeepsWhatWasJustSavedBelowOthers) {
  // Those above may be damaged: that is why training went on from below.
  EXPECT_THAT(StepsToRemove({100, 150, 300}, 150, {.keep_last = 1}), ElementsAre(100));
}

// The definition, step by step, without looking at places in a vector.
bool Kept(int64_t step, const std::set<int64_t>& steps, int64_t saved, const Retention& retention) {
  if (retention.keep_last == 0 || step == saved) return true;
  if (retention.keep_every > 0 && step % retention.keep_every == 0) return true;
  const int64_t above = std::count_if(steps.begin(), steps.end(), [&](int64_t other) { return other > step; });
  return above < retention.keep_last;
}

TEST(Retention, AgreesWithItsDefinitionOnRandomSaves) {
  std::mt19937 random(1);
  for (int run = 0; run < 200; ++run) {
    const Retention retention{static_cast<int>(random() % 5), static_cast<int64_t>(random() % 4) * 5};
    std::set<int64_t> steps;
    for (int save = 0; save < 30; ++save) {
      const int64_t saved = random() % 60;
      steps.insert(saved);
      std::vector<int64_t> expected;
      for (const int64_t step : steps) {
        if (!Kept(step, steps, saved, retention)) expected.push_back(step);
      }
      const auto removed = StepsToRemove({steps.begin(), steps.end()}, saved, retention);
      ASSERT_EQ(removed, expected) << "run " << run << ", save " << save;
      for (const int64_t step : removed) steps.erase(step);
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
