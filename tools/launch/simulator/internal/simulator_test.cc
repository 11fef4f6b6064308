#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/launch/simulator/internal/schedules.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_WITH_SANITIZER 1
#endif
#endif

namespace lockstep::launch::internal {
namespace {

#ifdef LOCKSTEP_WITH_SANITIZER
constexpr int64_t kSchedules = 4000;
#else
constexpr int64_t kSchedules = 100000;
#endif

using ::testing::IsEmpty;

TEST(Simulator, RandomSchedulesBreakNoRule) {
  const Tally tally = RunRandom(1, kSchedules);
  EXPECT_THAT(tally.violations, IsEmpty());
  // A rule is only worth something if schedules get where it counts.
  EXPECT_GT(tally.generations, tally.schedules);
  EXPECT_GT(tally.states.size(), kSchedules);
  EXPECT_GT(tally.refused, kSchedules / 10);
  for (const char* result : {"OK", "UNKNOWN", "UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"}) {
    EXPECT_GT(tally.results.count(result) ? tally.results.at(result) : 0, kSchedules / 1000) << result;
  }
}

TEST(Simulator, ADeathBeforeEachEventBreaksNoRule) {
  const Tally tally = CrashAtEveryEvent(2, 5);
  EXPECT_THAT(tally.violations, IsEmpty());
  EXPECT_GT(tally.schedules, 500);
}

TEST(Simulator, ASeedReplays) {
  Simulation::Config config;
  config.seed = 4711;
  config.faults = 5;
  const Simulation::Report first = Simulation(config).Run(), second = Simulation(config).Run();
  EXPECT_EQ(first.events, second.events);
  EXPECT_EQ(first.messages, second.messages);
  EXPECT_EQ(first.result, second.result);
}

}  // namespace
}  // namespace lockstep::launch::internal
