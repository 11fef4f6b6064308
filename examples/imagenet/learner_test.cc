#include "lockstep/examples/imagenet/learner.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/examples/ranks/alike.h"

namespace lockstep::examples::imagenet {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using data::Example;

constexpr int64_t kClasses = 5;

std::unique_ptr<Learner> Make(const TrainConfig& config, ProcessGroup* group = nullptr) {
  torch::manual_seed(1);
  absl::StatusOr<std::unique_ptr<Learner>> learner = Learner::Create(config, kClasses, c10::kCPU);
  EXPECT_TRUE(learner.ok()) << learner.status();
  EXPECT_TRUE((*learner)->Distribute(group).ok());
  return *std::move(learner);
}

Example Images(uint64_t seed) {
  torch::manual_seed(seed);
  return {at::randn({4, 3, 16, 16}), at::randint(0, kClasses, {4}, at::kLong)};
}

std::vector<at::Tensor> Copy(Learner& learner) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& parameter : learner.net()->parameters()) copies.push_back(parameter.detach().clone());
  return copies;
}

TEST(Learner, PartsOfAStepComeToTheMeanOfTheirGradientsWhenTheLastIsIn) {
  const Example batch = Images(7);
  const auto whole = Make({}), parts = Make({});
  const std::vector<at::Tensor> before = Copy(*parts);
  EXPECT_TRUE(whole->Train(batch, 1, true).ok());
  EXPECT_TRUE(parts->Train(batch, 2, false).ok());
  EXPECT_EQ(MaxDifference(Copy(*parts), before), 0) << "stepped too early";
  EXPECT_TRUE(parts->Train(batch, 2, true).ok());
  EXPECT_GT(MaxDifference(Copy(*whole), before), 1e-3);
  EXPECT_LT(MaxDifference(Copy(*whole), Copy(*parts)), 1e-5);
}

TEST(Learner, RanksAverageOnceAStepAndStayAlike) {
  TrainConfig config;
  config.ema_decay = 0.9;
  const std::vector<Example> batches = {Images(0), Images(1), Images(2)};
  EXPECT_TRUE(RunRanksOk(2, [&](ProcessGroup& group) {
                const Example& batch = batches[group.rank()];
                const std::unique_ptr<Learner> learner = Make(config, &group);
                for (const bool last : {false, true}) EXPECT_TRUE(learner->Train(batch, 2, last).ok());
                EXPECT_EQ(CheckAlike(learner->net()->parameters(), group), absl::OkStatus());
                EXPECT_NE(CheckAlike(learner->net()->buffers(), group), absl::OkStatus()) << "each has its statistics";
                EXPECT_EQ(learner->BeginEvaluation(), absl::OkStatus());
                const absl::StatusOr<BatchResult> result = learner->Evaluate(batches[2]);
                EXPECT_EQ(result->images, 4);
              }).ok());
}

TEST(Learner, StateGoesOnToTheSameBits) {
  TrainConfig config;
  config.ema_decay = 0.9;
  config.warmup_epochs = 2;
  const auto first = Make(config);
  EXPECT_TRUE(first->Train(Images(1), 1, true).ok());
  first->EndEpoch();
  const auto state = first->State();
  ASSERT_TRUE(state.ok());
  const auto second = Make(config);
  EXPECT_TRUE(second->Restore(checkpoint::Value::Dict(*state)).ok());
  EXPECT_EQ(second->lr(), first->lr());
  for (Learner* learner : {first.get(), second.get()}) EXPECT_TRUE(learner->Train(Images(2), 1, true).ok());
  EXPECT_EQ(MaxDifference(Copy(*first), Copy(*second)), 0);
  EXPECT_EQ(first->Evaluate(Images(3))->loss, second->Evaluate(Images(3))->loss);
}

TEST(Learner, TheAverageIsWhatIsEvaluated) {
  TrainConfig config;
  config.ema_decay = 0.999999;
  const auto learner = Make(config);
  const double before = learner->Evaluate(Images(3))->loss;
  EXPECT_TRUE(learner->Train(Images(1), 1, true).ok());
  EXPECT_NEAR(learner->Evaluate(Images(3))->loss, before, 1e-3);
  TrainConfig without;
  const auto plain = Make(without);
  EXPECT_TRUE(plain->Train(Images(1), 1, true).ok());
  EXPECT_GT(std::abs(plain->Evaluate(Images(3))->loss - before), 1e-2);
}

TEST(Learner, TheLearningRateWarmsUpAndFallsToATenthAfter30EpochsOrAlongACosine) {
  TrainConfig config;
  const auto rate_after = [&](int epochs) {
    const auto learner = Make(config);
    for (int epoch = 0; epoch < epochs; ++epoch) learner->EndEpoch();
    return learner->lr();
  };
  EXPECT_EQ(rate_after(29), 0.1);
  EXPECT_NEAR(rate_after(30), 0.01, 1e-15);
  config.schedule = Schedule::kCosine;
  EXPECT_NEAR(rate_after(45), 0.05, 1e-12);
  config.warmup_epochs = 10;
  EXPECT_NEAR(rate_after(0), 0.001, 1e-15);
  EXPECT_NEAR(rate_after(10), 0.1, 1e-15);
  EXPECT_NEAR(rate_after(50), 0.05, 1e-12);
}

TEST(Learner, OneDnnsLayoutHasTheSameLossesInOtherBits) {
  TrainConfig config;
  const auto plain = Make(config);
  config.mkldnn = true;
  const auto blocked = Make(config);
  for (const bool trains : {false, true}) {
    const auto loss = [&](Learner& learner) {
      return (trains ? learner.Train(Images(1), 1, true) : learner.Evaluate(Images(1)))->loss;
    };
    const double expected = loss(*plain);
    EXPECT_NEAR(loss(*blocked), expected, 1e-4 * expected) << trains;
  }
  EXPECT_GT(MaxDifference(Copy(*blocked), Copy(*plain)), 0) << "computed in the same layout";
}

TEST(Learner, WhatTheDeviceCannotDoIsRefused) {
  TrainConfig config;
  config.mkldnn = true;
  EXPECT_EQ(Learner::Create(config, kClasses, c10::kCUDA).status().message(), "--mkldnn is for the CPU");
  config.mkldnn = false;
  config.amp = Amp::kHalf;
  EXPECT_EQ(Learner::Create(config, kClasses, c10::kCPU).status().message(),
            "--amp=fp16 needs a GPU; on the CPU there is --amp=bf16");
}

}  // namespace
}  // namespace lockstep::examples::imagenet
