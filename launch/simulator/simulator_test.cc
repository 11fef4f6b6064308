// Tests the simulator that is linked.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/simulator/schedules.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_WITH_SANITIZER 1
#endif
#endif

namespace lockstep::launch::simulator {
namespace {

#ifdef LOCKSTEP_WITH_SANITIZER
constexpr int64_t kSchedules = 2000;
constexpr int kMost = 3, kMostOfPairs = 2, kLeastPairs = 5000;
#else
constexpr int64_t kSchedules = 20000;
constexpr int kMost = 5, kMostOfPairs = 3, kLeastPairs = 10000;
#endif

using ::testing::IsEmpty;

void ExpectAtLeast(const std::map<std::string, double>& least, Tally tally) {
  tally.counts.insert(tally.results.begin(), tally.results.end());
  tally.counts["states"] = static_cast<int64_t>(tally.states.size());
  for (const auto& [what, count] : least) {
    EXPECT_GT(tally.counts[what], count * static_cast<double>(tally.schedules)) << what;
  }
}

TEST(Simulator, RandomSchedulesBreakNoRule) {
  const Tally tally = RunRandom(1, kSchedules);
  EXPECT_THAT(tally.violations, IsEmpty());
  ExpectAtLeast(Level::LeastAtRandom(), tally);
}

TEST(Simulator, ADeathBeforeEachEventBreaksNoRule) {
  const Tally tally = DeathAtEveryEvent(2, kMost);
  EXPECT_THAT(tally.violations, IsEmpty());
  EXPECT_GT(tally.schedules, 500);
  ExpectAtLeast(Level::LeastWithDeaths(), tally);
}

TEST(Simulator, TwoDeathsBeforeEachPairOfEventsBreakNoRule) {
  const Tally tally = DeathsAtEveryPair(2, kMostOfPairs);
  EXPECT_THAT(tally.violations, IsEmpty());
  EXPECT_GT(tally.schedules, kLeastPairs);
  ExpectAtLeast(Level::LeastWithDeaths(), tally);
}

TEST(Simulator, ASeedReplays) {
  const Schedule schedule = Level::Random(4711);
  const Report first = schedule.run({}, false), second = schedule.run({}, false);
  EXPECT_GT(first.events, 20);
  EXPECT_EQ(first.events, second.events);
  EXPECT_EQ(first.counts, second.counts);
  EXPECT_EQ(first.states, second.states);
  EXPECT_EQ(first.result, second.result);
}

}  // namespace
}  // namespace lockstep::launch::simulator
