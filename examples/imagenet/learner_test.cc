#include "lockstep/examples/imagenet/learner.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/value.h"
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
  absl::StatusOr<std::unique_ptr<Learner>> learner =
      Learner::Create(config, kClasses, /*steps_per_epoch=*/10, c10::kCPU);
  EXPECT_TRUE(learner.ok()) << learner.status();
  EXPECT_TRUE((*learner)->Distribute(group).ok());
  EXPECT_TRUE((*learner)->Begin().ok());
  return *std::move(learner);
}

Example Images(uint64_t seed) {
  torch::manual_seed(seed);
  return {at::randn({4, 3, 16, 16}), at::randint(0, kClasses, {4}, at::kLong)};
}

// A step over `batches`, and the result of the last.
absl::StatusOr<BatchResult> Step(Learner& learner, const std::vector<Example>& batches) {
  absl::StatusOr<BatchResult> result;
  const auto parts = static_cast<int64_t>(batches.size());
  LOCKSTEP_RETURN_IF_ERROR(learner.ForEachVirtualRank(/*step=*/0, [&](int) {
    for (int64_t part = 0; part < parts; ++part) {
      result = learner.Train(batches[part], parts, part + 1 == parts);
      if (!result.ok()) break;
    }
    return result.status();
  }));
  LOCKSTEP_RETURN_IF_ERROR(learner.StepOptimizer());
  return result;
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
  EXPECT_TRUE(Step(*whole, {batch}).ok());
  EXPECT_TRUE(parts->Train(batch, 2, false).ok());
  EXPECT_TRUE(parts->Train(batch, 2, true).ok());
  EXPECT_EQ(MaxDifference(Copy(*parts), before), 0) << "stepped too early";
  EXPECT_TRUE(parts->StepOptimizer().ok());
  EXPECT_GT(MaxDifference(Copy(*whole), before), 1e-3);
  EXPECT_LT(MaxDifference(Copy(*whole), Copy(*parts)), 1e-5);
}

TEST(Learner, AFrozenBackboneKeepsItsWeightsAndAverages) {
  TrainConfig config;
  config.freeze_backbone = true;
  const std::unique_ptr<Learner> learner = Make(config);
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : learner->net()->buffers()) buffers.push_back(buffer.clone());
  const std::vector<at::Tensor> before = Copy(*learner);
  EXPECT_TRUE(Step(*learner, {Images(7)}).ok());
  EXPECT_TRUE(Step(*learner, {Images(8)}).ok());
  const std::vector<at::Tensor> after = Copy(*learner);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].equal(before[i]), i + 2 < before.size()) << i << ": only fc.weight and fc.bias learn";
  }
  EXPECT_EQ(MaxDifference(learner->net()->buffers(), buffers), 0);
  EXPECT_TRUE(learner->State().ok());
}

TEST(Learner, RanksAverageOnceAStepAndStayAlike) {
  TrainConfig config;
  config.ema_decay = 0.9;
  const std::vector<Example> batches = {Images(0), Images(1), Images(2)};
  EXPECT_TRUE(RunRanksOk(2, [&](ProcessGroup& group) {
                const Example& batch = batches[group.rank()];
                const std::unique_ptr<Learner> learner = Make(config, &group);
                EXPECT_TRUE(Step(*learner, {batch, batch}).ok());
                EXPECT_EQ(CheckAlike(learner->net()->parameters(), group), absl::OkStatus());
                EXPECT_NE(CheckAlike(learner->net()->buffers(), group), absl::OkStatus()) << "each has its statistics";
                EXPECT_EQ(learner->BeginEvaluation(), absl::OkStatus());
                const absl::StatusOr<BatchResult> result = learner->Evaluate(batches[2]);
                EXPECT_EQ(result->images, 4);
              }).ok());
}

TEST(Learner, VirtualRanksStepToTheSameBitsOnAnyNumberOfRanks) {
  TrainConfig config;
  config.ema_decay = 0.9;
  config.virtual_ranks = 2;
  std::vector<std::vector<Example>> batches;  // two of each virtual rank
  for (int v = 0; v < 2; ++v) batches.push_back({Images(2 * v), Images(2 * v + 1)});
  std::vector<at::Tensor> expected;
  for (const int ranks : {1, 2}) {
    std::vector<std::unique_ptr<Learner>> learners;  // made here, as the ranks share one generator
    for (int rank = 0; rank < ranks; ++rank) learners.push_back(Make(config));
    EXPECT_TRUE(RunRanksOk(ranks, [&](ProcessGroup& group) {
                  const std::unique_ptr<Learner>& learner = learners[group.rank()];
                  EXPECT_EQ(learner->Distribute(&group), absl::OkStatus());
                  for (int step = 0; step < 2; ++step) {
                    const auto train = [&](int virtual_rank) -> absl::Status {
                      const std::vector<Example>& own = batches[virtual_rank];
                      LOCKSTEP_RETURN_IF_ERROR(learner->Train(own[0], 2, false).status());
                      return learner->Train(own[1], 2, true).status();
                    };
                    EXPECT_EQ(learner->ForEachVirtualRank(step, train), absl::OkStatus());
                    EXPECT_EQ(learner->StepOptimizer(), absl::OkStatus());
                  }
                  if (group.rank() != 0) return;
                  if (ranks == 1) expected = Copy(*learner);
                  EXPECT_EQ(MaxDifference(Copy(*learner), expected), 0) << ranks << " ranks";
                }).ok());
  }
}

class LearnerOf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(EachOptimizer, LearnerOf, ::testing::ValuesIn(OptimizerNames()),
                         [](const auto& info) { return info.param; });

TEST_P(LearnerOf, StateGoesOnToTheSameBits) {
  TrainConfig config;
  config.optimizer = GetParam();
  config.ema_decay = 0.9;
  config.warmup_epochs = 2;
  const auto first = Make(config);
  EXPECT_TRUE(Step(*first, {Images(1)}).ok());
  first->rates().EndEpoch(/*acc1=*/50);
  const auto state = first->State();
  ASSERT_TRUE(state.ok());
  const auto second = Make(config);
  EXPECT_TRUE(second->Restore(checkpoint::Value::Dict(*state)).ok());
  EXPECT_EQ(second->rates().lr(), first->rates().lr());
  for (Learner* learner : {first.get(), second.get()}) EXPECT_TRUE(Step(*learner, {Images(2)}).ok());
  EXPECT_EQ(MaxDifference(Copy(*first), Copy(*second)), 0);
  EXPECT_EQ(first->Evaluate(Images(3))->loss, second->Evaluate(Images(3))->loss);
}

// The first step's average is decay * initial + (1 - decay) * new, and counters are copied.
TEST(Learner, TheAverageMovesFromTheInitialWeightsByOneMinusDecay) {
  TrainConfig config;
  config.ema_decay = 0.75;
  const auto learner = Make(config);
  const at::Tensor before = learner->net()->parameters()[0].detach().clone();
  EXPECT_TRUE(Step(*learner, {Images(1)}).ok());
  const auto state = learner->State();
  ASSERT_TRUE(state.ok()) << state.status();
  const checkpoint::Value file = checkpoint::Value::Dict(*state);
  const at::Tensor now = *checkpoint::GetTensor(file, {"state_dict", "conv1.weight"});
  EXPECT_TRUE(checkpoint::GetTensor(file, {"model_ema", "conv1.weight"})->equal(before.lerp(now, 0.25)));
  EXPECT_EQ(checkpoint::GetTensor(file, {"model_ema", "bn1.num_batches_tracked"})->item<int64_t>(), 1);
}

TEST(Learner, TheAverageIsWhatIsEvaluated) {
  TrainConfig config;
  config.ema_decay = 0.999999;
  const auto learner = Make(config);
  const double before = learner->Evaluate(Images(3))->loss;
  EXPECT_TRUE(Step(*learner, {Images(1)}).ok());
  EXPECT_NEAR(learner->Evaluate(Images(3))->loss, before, 1e-3);
  TrainConfig without;
  const auto plain = Make(without);
  EXPECT_TRUE(Step(*plain, {Images(1)}).ok());
  EXPECT_GT(std::abs(plain->Evaluate(Images(3))->loss - before), 1e-2);
}

TEST(Learner, OneDnnsLayoutHasTheSameLossesInOtherBits) {
  TrainConfig config;
  const auto plain = Make(config);
  config.mkldnn = true;
  const auto blocked = Make(config);
  for (const bool trains : {false, true}) {
    const auto loss = [&](Learner& learner) {
      return (trains ? Step(learner, {Images(1)}) : learner.Evaluate(Images(1)))->loss;
    };
    const double expected = loss(*plain);
    EXPECT_NEAR(loss(*blocked), expected, 1e-4 * expected) << trains;
  }
  EXPECT_GT(MaxDifference(Copy(*blocked), Copy(*plain)), 0) << "computed in the same layout";
}

TEST(Learner, WhatTheDeviceCannotDoIsRefused) {
  TrainConfig config;
  config.mkldnn = true;
  EXPECT_EQ(Learner::Create(config, kClasses, /*steps_per_epoch=*/10, c10::kCUDA).status().message(),
            "--mkldnn is for the CPU");
  config.mkldnn = false;
  config.amp = "fp16";
  EXPECT_EQ(Learner::Create(config, kClasses, /*steps_per_epoch=*/10, c10::kCPU).status().message(),
            "--amp=fp16 needs a GPU; on the CPU there is --amp=bf16");
}

}  // namespace
}  // namespace lockstep::examples::imagenet
