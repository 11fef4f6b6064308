#include "lockstep/launch/job/restart_policy.h"

#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

constexpr AttemptEnd kFailed = AttemptEnd::kFailed;

absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// After an attempt of 20 s.
bool Restarts(RestartPolicy* policy, AttemptEnd end, absl::Time now) {
  return policy->Restart(end, now - absl::Seconds(20), now);
}

// After an attempt that failed in `duration`.
bool RestartsAfter(RestartPolicy* policy, absl::Duration duration) {
  return policy->Restart(kFailed, At(0), At(0) + duration);
}

TEST(RestartPolicy, DoesNotRestartUnlessAsked) {
  RestartPolicy policy(0, absl::InfiniteDuration());
  EXPECT_FALSE(Restarts(&policy, kFailed, At(0)));
  EXPECT_EQ(policy.Ending(kFailed), "");
  EXPECT_EQ(policy.Ending(AttemptEnd::kNotStarted), "");
  EXPECT_EQ(policy.restarts(), 0);
}

TEST(RestartPolicy, RestartsAsOftenAsAsked) {
  RestartPolicy policy(2, absl::InfiniteDuration());
  EXPECT_TRUE(Restarts(&policy, kFailed, At(0)));
  EXPECT_EQ(policy.Announcement(), "restart 1 of 2");
  EXPECT_TRUE(Restarts(&policy, kFailed, At(1000000)));
  EXPECT_EQ(policy.Announcement(), "restart 2 of 2");
  EXPECT_FALSE(Restarts(&policy, kFailed, At(2000000)));
  EXPECT_EQ(policy.Ending(kFailed), "; after 2 restarts");
  EXPECT_EQ(policy.restarts(), 2);
}

TEST(RestartPolicy, CountsOneRestartInTheSingular) {
  RestartPolicy policy(1, absl::InfiniteDuration());
  EXPECT_TRUE(Restarts(&policy, kFailed, At(0)));
  EXPECT_FALSE(Restarts(&policy, kFailed, At(0)));
  EXPECT_EQ(policy.Ending(kFailed), "; after 1 restart");
}

TEST(RestartPolicy, DoesNotRestartWithoutAProgram) {
  RestartPolicy policy(3, absl::InfiniteDuration());
  EXPECT_FALSE(Restarts(&policy, AttemptEnd::kNotStarted, At(0)));
  EXPECT_EQ(policy.Ending(AttemptEnd::kNotStarted), "; a failed start-up is not retried");
  EXPECT_EQ(policy.restarts(), 0);
}

TEST(RestartPolicy, ForgetsARestartAfterTheWindow) {
  RestartPolicy policy(2, absl::Seconds(60));
  EXPECT_TRUE(Restarts(&policy, kFailed, At(0)));
  EXPECT_TRUE(Restarts(&policy, kFailed, At(30)));
  EXPECT_TRUE(Restarts(&policy, kFailed, At(60))) << "the first is 60 s old";
  EXPECT_EQ(policy.Announcement(), "restart 3, 2 of 2 within 1m");
  EXPECT_FALSE(Restarts(&policy, kFailed, At(89))) << "the second is 59 s old";
  EXPECT_EQ(policy.restarts(), 3);
  EXPECT_EQ(policy.Ending(kFailed), "; after 3 restarts, 2 of them within 1m");
}

TEST(RestartPolicy, PausesWhileAttemptsAreShort) {
  RestartPolicy policy(100, absl::InfiniteDuration());
  for (const int pause_ms : {0, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000}) {
    EXPECT_TRUE(RestartsAfter(&policy, absl::Milliseconds(9999)));
    EXPECT_EQ(policy.Pause(), absl::Milliseconds(pause_ms));
  }
  EXPECT_EQ(policy.Announcement(), "restart 11 of 100 in 10s");
  EXPECT_TRUE(RestartsAfter(&policy, absl::Seconds(10)));
  EXPECT_EQ(policy.Pause(), absl::ZeroDuration()) << "the attempt was long";
  EXPECT_EQ(policy.Announcement(), "restart 12 of 100");
  EXPECT_TRUE(RestartsAfter(&policy, absl::Seconds(1)));
  EXPECT_EQ(policy.Pause(), absl::ZeroDuration());
  EXPECT_TRUE(RestartsAfter(&policy, absl::Seconds(1)));
  EXPECT_EQ(policy.Pause(), absl::Milliseconds(100));
}

TEST(RestartPolicy, NamesTheWindowBeforeThePause) {
  RestartPolicy policy(2, absl::Seconds(60));
  EXPECT_TRUE(RestartsAfter(&policy, absl::ZeroDuration()));
  EXPECT_TRUE(RestartsAfter(&policy, absl::ZeroDuration()));
  EXPECT_EQ(policy.Announcement(), "restart 2, 2 of 2 within 1m in 100ms");
}

TEST(RestartPolicy, CallsThreeShortAttemptsACrashLoop) {
  RestartPolicy two(1, absl::InfiniteDuration()), three(2, absl::InfiniteDuration());
  EXPECT_TRUE(RestartsAfter(&two, absl::Milliseconds(10)));
  EXPECT_FALSE(RestartsAfter(&two, absl::Milliseconds(10)));
  EXPECT_EQ(two.Ending(kFailed), "; after 1 restart");
  EXPECT_TRUE(RestartsAfter(&three, absl::Milliseconds(10)));
  EXPECT_TRUE(RestartsAfter(&three, absl::Milliseconds(120)));
  EXPECT_FALSE(RestartsAfter(&three, absl::Milliseconds(10)));
  EXPECT_EQ(three.Ending(kFailed), "; after 2 restarts; each of the last 3 attempts failed within 200ms");
}

TEST(RestartPolicy, CountsTheShortAttemptsAfterTheLastLongOne) {
  RestartPolicy policy(4, absl::InfiniteDuration());
  EXPECT_TRUE(RestartsAfter(&policy, absl::Milliseconds(9900)));
  EXPECT_TRUE(RestartsAfter(&policy, absl::Seconds(3600)));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(RestartsAfter(&policy, absl::Milliseconds(1100)));
  EXPECT_FALSE(RestartsAfter(&policy, absl::Milliseconds(1200)));
  EXPECT_EQ(policy.Ending(kFailed), "; after 4 restarts; each of the last 3 attempts failed within 1.2s");
}

}  // namespace
}  // namespace lockstep::launch
