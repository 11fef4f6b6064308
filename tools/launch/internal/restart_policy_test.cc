#include "lockstep/tools/launch/internal/restart_policy.h"

#include "gtest/gtest.h"

namespace lockstep::launch::internal {
namespace {

constexpr AttemptEnd kFailed = AttemptEnd::kFailed;

absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(RestartPolicy, DoesNotRestartUnlessAsked) {
  RestartPolicy policy(0, absl::InfiniteDuration());
  EXPECT_FALSE(policy.Restart(kFailed, At(0)));
  EXPECT_EQ(policy.Ending(kFailed), "");
  EXPECT_EQ(policy.Ending(AttemptEnd::kNotStarted), "");
  EXPECT_EQ(policy.restarts(), 0);
}

TEST(RestartPolicy, RestartsAsOftenAsAsked) {
  RestartPolicy policy(2, absl::InfiniteDuration());
  EXPECT_TRUE(policy.Restart(kFailed, At(0)));
  EXPECT_EQ(policy.Announcement(), "restart 1 of 2");
  EXPECT_TRUE(policy.Restart(kFailed, At(1000000)));
  EXPECT_EQ(policy.Announcement(), "restart 2 of 2");
  EXPECT_FALSE(policy.Restart(kFailed, At(2000000)));
  EXPECT_EQ(policy.Ending(kFailed), "; after 2 restarts");
  EXPECT_EQ(policy.restarts(), 2);
}

TEST(RestartPolicy, CountsOneRestartInTheSingular) {
  RestartPolicy policy(1, absl::InfiniteDuration());
  EXPECT_TRUE(policy.Restart(kFailed, At(0)));
  EXPECT_FALSE(policy.Restart(kFailed, At(0)));
  EXPECT_EQ(policy.Ending(kFailed), "; after 1 restart");
}

TEST(RestartPolicy, RestartsNeitherAfterASignalNorWithoutAProgram) {
  RestartPolicy policy(3, absl::InfiniteDuration());
  EXPECT_FALSE(policy.Restart(AttemptEnd::kSignalled, At(0)));
  EXPECT_EQ(policy.Ending(AttemptEnd::kSignalled), "");
  EXPECT_FALSE(policy.Restart(AttemptEnd::kNotStarted, At(0)));
  EXPECT_EQ(policy.Ending(AttemptEnd::kNotStarted), "; a failed start-up is not retried");
  EXPECT_EQ(policy.restarts(), 0);
}

TEST(RestartPolicy, ForgetsARestartAfterTheWindow) {
  RestartPolicy policy(2, absl::Seconds(60));
  EXPECT_TRUE(policy.Restart(kFailed, At(0)));
  EXPECT_TRUE(policy.Restart(kFailed, At(30)));
  EXPECT_TRUE(policy.Restart(kFailed, At(60))) << "the first is 60 s old";
  EXPECT_EQ(policy.Announcement(), "restart 3, 2 of 2 within 1m");
  EXPECT_FALSE(policy.Restart(kFailed, At(89))) << "the second is 59 s old";
  EXPECT_EQ(policy.restarts(), 3);
  EXPECT_EQ(policy.Ending(kFailed), "; after 3 restarts, 2 of them within 1m");
}

}  // namespace
}  // namespace lockstep::launch::internal
