#include "lockstep/base/progress.h"

#include <atomic>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/heartbeat.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;

TEST(Heartbeat, BeatsAgainAndAgainUntilItsEnd) {
  std::atomic<int> beats{0};
  {
    const Heartbeat heartbeat(absl::Milliseconds(10), [&] { ++beats; });
    while (beats < 3) absl::SleepFor(absl::Milliseconds(1));
  }
  const int at_its_end = beats;
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(beats, at_its_end);
}

TEST(Heartbeat, EndsAtOnce) {
  const absl::Time start = absl::Now();
  {
    const Heartbeat heartbeat(absl::Hours(1), [] {});
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST(Progress, SaysWhatIsDoneAndHowLongItHasTaken) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress("dp", absl::Milliseconds(300));
    progress.Doing("step 3 of 200\x1b");
    absl::SleepFor(absl::Milliseconds(800));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("^dp: step 3 of 200\\\\x1b, [0-9] s\ndp: step 3 of 200\\\\x1b, [0-9] s\n"));
}

TEST(Progress, AShortRunPrintsNothing) {
  ::testing::internal::CaptureStderr();
  { Progress("dp").Doing("step 1 of 2"); }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace lockstep
