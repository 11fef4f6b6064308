#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/elastic/simulator/internal/schedules.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_WITH_SANITIZER 1
#endif
#endif

namespace lockstep::elastic::internal {
namespace {

#ifdef LOCKSTEP_WITH_SANITIZER
constexpr int64_t kSchedules = 2000;
constexpr int kMostRanks = 3, kMostRanksOfPairs = 2;
#else
constexpr int64_t kSchedules = 100000;
constexpr int kMostRanks = 5, kMostRanksOfPairs = 3;
#endif

using ::testing::IsEmpty;

TEST(Simulator, RandomSchedulesBreakNoRule) {
  const Tally tally = RunRandom(1, kSchedules);
  EXPECT_THAT(tally.violations, IsEmpty());
  // A rule is only worth something if schedules get where it counts.
  EXPECT_GT(tally.generations, 2 * kSchedules);
  EXPECT_GT(tally.healed, kSchedules / 4);
  EXPECT_GT(tally.repeated, kSchedules);
  EXPECT_EQ(tally.most_ranks, 5);
}

TEST(Simulator, ADeathBeforeEachEventBreaksNoRule) {
  const Tally tally = DeathAtEveryEvent(2, kMostRanks);
  EXPECT_THAT(tally.violations, IsEmpty());
  // In the others the process dies before the first generation.
  EXPECT_GT(10 * tally.results.at("success"), 9 * tally.schedules);
  EXPECT_GT(tally.generations, 2 * tally.schedules);
  EXPECT_GT(tally.schedules, 500);
}

TEST(Simulator, TwoDeathsBeforeEachPairOfEventsBreakNoRule) {
  const Tally tally = DeathsAtEveryPair(2, kMostRanksOfPairs);
  EXPECT_THAT(tally.violations, IsEmpty());
  EXPECT_GT(10 * tally.results.at("success"), 9 * tally.schedules);
  EXPECT_GT(tally.schedules, 10000);
}

TEST(Simulator, ASeedReplays) {
  Simulation::Config config;
  config.seed = 4711;
  config.faults = 5;
  const Simulation::Report first = Simulation(config).Run(), second = Simulation(config).Run();
  EXPECT_GT(first.events, 100);
  EXPECT_EQ(first.events, second.events);
  EXPECT_EQ(first.generations, second.generations);
  EXPECT_EQ(first.result, second.result);
}

}  // namespace
}  // namespace lockstep::elastic::internal
