#include "lockstep/examples/imagenet/rate_schedule.h"

#include <ATen/ops/zeros.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::examples::imagenet {
namespace {

constexpr int64_t kStepsPerEpoch = 4;

// A schedule of the flags over an optimizer of its own.
struct Scheduled {
  explicit Scheduled(const TrainConfig& config)
      : optimizer(std::vector<at::Tensor>{at::zeros({1})}, torch::optim::SGDOptions(config.lr).momentum(0.9)),
        rates(RateSchedule::Create(&optimizer, config, kStepsPerEpoch)) {
    EXPECT_TRUE(rates.ok()) << rates.status();
  }

  double rate() { return optimizer.param_groups()[0].options().get_lr(); }

  // Trains epochs of a constant accuracy, and returns the rate after them.
  double RateAfter(int64_t epochs) {
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      for (int64_t step = 0; step < kStepsPerEpoch; ++step) EXPECT_EQ(rates->EndStep(), absl::OkStatus());
      rates->EndEpoch(/*acc1=*/50);
    }
    return rate();
  }

  torch::optim::SGD optimizer;
  absl::StatusOr<RateSchedule> rates;
};

double RateAfter(const TrainConfig& config, int64_t epochs) { return Scheduled(config).RateAfter(epochs); }

TEST(RateSchedule, FallsToATenthAfter30EpochsOrAlongACosineAndWarmsUp) {
  TrainConfig config;
  EXPECT_EQ(RateAfter(config, 29), 0.1);
  EXPECT_NEAR(RateAfter(config, 30), 0.01, 1e-15);
  config.schedule = "cosine";
  EXPECT_NEAR(RateAfter(config, 45), 0.05, 1e-12);
  config.warmup_epochs = 10;
  EXPECT_NEAR(RateAfter(config, 0), 0.001, 1e-15);
  EXPECT_NEAR(RateAfter(config, 10), 0.1, 1e-15);
  EXPECT_NEAR(RateAfter(config, 50), 0.05, 1e-12);
}

TEST(RateSchedule, HasOtherSchedulesByName) {
  TrainConfig config;
  const auto rate_after = [&](const char* name, int64_t epochs) {
    config.schedule = name;
    return RateAfter(config, epochs);
  };
  EXPECT_NEAR(rate_after("linear", 45), 0.05, 1e-12);
  EXPECT_NEAR(rate_after("polynomial", 45), 0.025, 1e-12);
  EXPECT_NEAR(rate_after("warm_restarts", 15), 0.05, 1e-12);
  EXPECT_NEAR(rate_after("warm_restarts", 30), 0.1, 1e-12);
  EXPECT_NEAR(rate_after("plateau", 11), 0.1, 1e-12);
  EXPECT_NEAR(rate_after("plateau", 12), 0.01, 1e-12);
}

TEST(RateSchedule, AdvancesInEachStepWithWarmupSteps) {
  TrainConfig config;
  config.schedule = "cosine";
  config.epochs = 11;
  config.warmup_steps = 4;
  Scheduled scheduled(config);
  EXPECT_NEAR(scheduled.rate(), 0.001, 1e-15);
  for (int step = 0; step < 2; ++step) EXPECT_EQ(scheduled.rates->EndStep(), absl::OkStatus());
  EXPECT_NEAR(scheduled.rate(), 0.1 * (0.01 + 0.99 * 2 / 4), 1e-15);
  EXPECT_NEAR(scheduled.rates->lr(), 0.1 * (0.01 + 0.99 * 1 / 4), 1e-15) << "not the rate of the last step";
  EXPECT_NEAR(RateAfter(config, 1), 0.1, 1e-15);
  EXPECT_NEAR(RateAfter(config, 6), 0.05, 1e-12);
  EXPECT_NEAR(RateAfter(config, 11), 0, 1e-12);
}

TEST(RateSchedule, OneCycleFallsToNothingAndKeepsARatePastItsEnd) {
  TrainConfig config;
  config.schedule = "one_cycle";
  config.epochs = 10;
  Scheduled scheduled(config);
  EXPECT_NEAR(scheduled.rate(), 0.1 / 25, 1e-15);
  for (int step = 0; step < 10 * kStepsPerEpoch; ++step) EXPECT_EQ(scheduled.rates->EndStep(), absl::OkStatus());
  EXPECT_LT(scheduled.rates->lr(), 1e-6);
  const double end = scheduled.rate();
  EXPECT_LT(end, 1e-3);
  EXPECT_EQ(scheduled.RateAfter(1), end);
}

TEST(RateSchedule, SkippedEpochsAreAsTrainedOnes) {
  for (const std::string schedule : {"step", "one_cycle", "cosine"}) {
    TrainConfig config;
    config.schedule = schedule;
    config.epochs = 40;
    config.warmup_steps = schedule == "cosine" ? 5 : 0;
    Scheduled skipped(config);
    for (int epoch = 0; epoch < 31; ++epoch) EXPECT_EQ(skipped.rates->SkipEpoch(), absl::OkStatus());
    EXPECT_EQ(skipped.rate(), RateAfter(config, 31)) << schedule;
  }
}

TEST(RateSchedule, RefusesAWarmupThatIsLongerThanTheRun) {
  TrainConfig config;
  config.epochs = 3;
  config.warmup_steps = 12;
  torch::optim::SGD optimizer(std::vector<at::Tensor>{at::zeros({1})}, torch::optim::SGDOptions(0.1));
  EXPECT_EQ(RateSchedule::Create(&optimizer, config, kStepsPerEpoch).status().message(),
            "--warmup-steps=12: expected less than the 12 steps of the run");
}

}  // namespace
}  // namespace lockstep::examples::imagenet
