#include "lockstep/base/posix/deadline.h"

#include <chrono>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(MonotonicNanos, IsTheClockOfTheStandardLibrary) {
  const int64_t before = MonotonicNanos();
  const int64_t between = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  EXPECT_LE(before, between);
  EXPECT_LE(between, MonotonicNanos());
  EXPECT_LE(between, absl::ToUnixNanos(MonotonicTime()));
}

TEST(After, IsNeverForWhatIsTooFarAway) {
  EXPECT_EQ(After(5, absl::Nanoseconds(2)), 7);
  EXPECT_EQ(After(5, absl::Nanoseconds(-2)), 3);
  EXPECT_EQ(After(5, absl::InfiniteDuration()), kNever);
  EXPECT_EQ(After(absl::Hours(24 * 365 * 300)), kNever);
}

TEST(PollTimeout, IsRoundedUpAndFitsIntoAnInt) {
  EXPECT_EQ(PollTimeout(absl::Milliseconds(20)), 20);
  EXPECT_EQ(PollTimeout(absl::Microseconds(20001)), 21);
  EXPECT_EQ(PollTimeout(absl::Nanoseconds(1)), 1);
  EXPECT_EQ(PollTimeout(absl::ZeroDuration()), 0);
  EXPECT_EQ(PollTimeout(-absl::InfiniteDuration()), 0);
  EXPECT_EQ(PollTimeout(absl::Hours(24 * 365)), std::numeric_limits<int>::max());
  EXPECT_EQ(PollTimeout(absl::InfiniteDuration()), -1);
}

TEST(PollTimeout, LastsUntilADeadline) {
  EXPECT_EQ(PollTimeout(MonotonicNanos() - 1), 0);
  EXPECT_GT(PollTimeout(After(absl::Minutes(10))), 500'000);
  EXPECT_LE(PollTimeout(After(absl::Minutes(10))), 600'000);
  EXPECT_EQ(PollTimeout(kNever), -1);
  using Clock = std::chrono::steady_clock;
  EXPECT_EQ(PollTimeout(Clock::time_point()), 0);
  EXPECT_GT(PollTimeout(Clock::now() + std::chrono::minutes(10)), 500'000);
  EXPECT_LE(PollTimeout(Clock::now() + std::chrono::minutes(10)), 600'000);
  EXPECT_EQ(PollTimeout(Clock::time_point::max()), -1);
}

}  // namespace
}  // namespace lockstep
