#include "lockstep/comm/testing/watching.h"

#include "gtest/gtest.h"

namespace lockstep::comm::testing {
namespace {

// On an idle machine 64 ranks take 20 ms for the first and 10 ms for the second.
constexpr absl::Duration kGenerous = absl::Seconds(2);

TEST(WatchARankDie, AllOf64RanksSoonKnowTheSameCauseWhicheverDied) {
  for (const int victim : {63, 0}) {
    WatchingOptions options;
    options.world_size = 64;
    options.victim = victim;
    options.idle = absl::ZeroDuration();
    const absl::StatusOr<Watching> watching = WatchARankDie(options);
    ASSERT_EQ(watching.status(), absl::OkStatus()) << victim;
    EXPECT_LE(watching->last, kGenerous) << victim;
  }
}

TEST(WatchARankDie, RanksThatDoNothingDoNotWake) {
  WatchingOptions options;
  options.world_size = 16;
  options.victim = 15;
  const absl::StatusOr<Watching> watching = WatchARankDie(options);
  ASSERT_EQ(watching.status(), absl::OkStatus());
  EXPECT_LE(watching->idle_wakeups, 16);
}

}  // namespace
}  // namespace lockstep::comm::testing
