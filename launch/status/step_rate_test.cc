#include "lockstep/launch/status/step_rate.h"

#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

constexpr int64_t kMillisecond = 1'000'000, kSecond = 1'000'000'000;

TEST(StepRate, KnowsNoRateBeforeTwoSteps) {
  StepRate rate;
  EXPECT_FALSE(rate.step());
  EXPECT_FALSE(rate.PerSecond(0));
  rate.Record(7, kSecond);
  EXPECT_EQ(rate.step(), 7);
  EXPECT_FALSE(rate.PerSecond(2 * kSecond));
  rate.Record(7, 2 * kSecond);
  EXPECT_FALSE(rate.PerSecond(2 * kSecond)) << "it is the same step";
}

TEST(StepRate, CountsTheStepsOfTheLastTenSeconds) {
  StepRate rate;
  for (int i = 0; i <= 100; ++i) rate.Record(i, i * kSecond);                                  // 1 a second
  for (int i = 1; i <= 200; ++i) rate.Record(100 + i, 100 * kSecond + i * 50 * kMillisecond);  // 20 a second for 10 s
  EXPECT_NEAR(*rate.PerSecond(110 * kSecond), 20, 1e-6);
  EXPECT_EQ(rate.step(), 300);
}

TEST(StepRate, ASlowStepIsMeasuredWhole) {
  StepRate rate;
  rate.Record(1, 0);
  rate.Record(2, 60 * kSecond);
  EXPECT_NEAR(*rate.PerSecond(60 * kSecond), 1.0 / 60, 1e-9);
  rate.Record(3, 120 * kSecond);
  EXPECT_NEAR(*rate.PerSecond(120 * kSecond), 1.0 / 60, 1e-9);
  EXPECT_NEAR(*rate.PerSecond(200 * kSecond), 1.0 / 80, 1e-9) << "20 s late";
  EXPECT_EQ(*rate.PerSecond(250 * kSecond), 0) << "two steps late";
}

TEST(StepRate, FallsWhileTheNextStepIsLate) {
  StepRate rate;
  for (int i = 0; i <= 10; ++i) rate.Record(i, i * kSecond);
  EXPECT_NEAR(*rate.PerSecond(11 * kSecond), 1, 1e-9) << "the next step may come just now";
  EXPECT_NEAR(*rate.PerSecond(16 * kSecond), 4.0 / 9, 1e-9) << "4 steps since second 6, and the next is 5 s late";
  EXPECT_NEAR(*rate.PerSecond(20 * kSecond), 0.1, 1e-9) << "1 step in 10 s";
  EXPECT_EQ(*rate.PerSecond(22 * kSecond), 0) << "none in 10 s";
  EXPECT_EQ(*rate.PerSecond(1000 * kSecond), 0);
  EXPECT_EQ(rate.Age(1000 * kSecond), absl::Seconds(990));
}

TEST(StepRate, BeginsAnewAfterAStepBack) {
  StepRate rate;
  for (int i = 0; i <= 10; ++i) rate.Record(1000 + i, i * kSecond);
  rate.Record(500, 11 * kSecond);
  EXPECT_EQ(rate.step(), 500);
  EXPECT_FALSE(rate.PerSecond(11 * kSecond));
  rate.Record(504, 12 * kSecond);
  EXPECT_NEAR(*rate.PerSecond(12 * kSecond), 4, 1e-9);
}

TEST(StepRate, ManyShortStepsAreCountedToo) {
  StepRate rate;
  for (int i = 0; i <= 100000; ++i) rate.Record(i, i * kMillisecond);
  EXPECT_NEAR(*rate.PerSecond(100 * kSecond), 1000, 1);
}

}  // namespace
}  // namespace lockstep::launch
