#include "lockstep/launch/job/early_deaths.h"

#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

constexpr int64_t kSecond = 1000000000;

Failure Death(bool killed) {
  Failure failure;
  failure.status = absl::AbortedError("rank 1 has failed");
  failure.killed = killed;
  return failure;
}

TEST(EarlyDeaths, WaitUntilAProcessStays) {
  EarlyDeaths deaths;
  EXPECT_TRUE(deaths.empty());
  EXPECT_EQ(deaths.next_look(), kNever);
  EXPECT_TRUE(deaths.Hold(1, Death(true), kSecond / 10, 10 * kSecond));
  EXPECT_TRUE(deaths.Hold(2, Death(true), kSecond / 10, 12 * kSecond));
  EXPECT_FALSE(deaths.empty());
  EXPECT_EQ(deaths.next_look(), 15 * kSecond);
  EXPECT_TRUE(deaths.Take(/*stays=*/false, /*others_run=*/true, 13 * kSecond).empty());
  const auto taken = deaths.Take(/*stays=*/true, /*others_run=*/true, 13 * kSecond);
  ASSERT_EQ(taken.size(), 2);
  EXPECT_EQ(taken[0].first, 1);
  EXPECT_EQ(taken[1].first, 2);
  EXPECT_EQ(taken[1].second.status, absl::AbortedError("rank 1 has failed"));
  EXPECT_EQ(deaths.next_look(), kNever);
  EXPECT_TRUE(deaths.Take(/*stays=*/true, /*others_run=*/true, 14 * kSecond).empty());
}

TEST(EarlyDeaths, DoNotWaitForLong) {
  EarlyDeaths deaths;
  ASSERT_TRUE(deaths.Hold(1, Death(true), kSecond, 10 * kSecond));
  EXPECT_EQ(deaths.Take(/*stays=*/false, /*others_run=*/true, 15 * kSecond).size(), 1);
  // The time begins anew.
  ASSERT_TRUE(deaths.Hold(1, Death(true), kSecond, 20 * kSecond));
  EXPECT_TRUE(deaths.Take(/*stays=*/false, /*others_run=*/true, 24 * kSecond).empty());
  EXPECT_EQ(deaths.Take(/*stays=*/false, /*others_run=*/false, 24 * kSecond).size(), 1);
}

TEST(EarlyDeaths, AProcessThatExitsOrHasLivedForLongIsDecidedAboutAtOnce) {
  EarlyDeaths deaths;
  EXPECT_FALSE(deaths.Hold(1, Death(false), kSecond, 10 * kSecond));
  EXPECT_FALSE(deaths.Hold(1, Death(true), 61 * kSecond, 100 * kSecond));
  EXPECT_EQ(deaths.next_look(), kNever);
}

}  // namespace
}  // namespace lockstep::launch
