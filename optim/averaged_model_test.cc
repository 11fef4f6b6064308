#include "lockstep/optim/averaged_model.h"

#include <ATen/ops/full.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::optim {
namespace {

using torch::nn::BatchNorm1d;
using torch::nn::BatchNorm1dImpl;

std::shared_ptr<AveragedModel> Make(const torch::nn::Module& model, AveragedModelOptions options = {}) {
  auto made = AveragedModel::Create(model, std::move(options));
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

void Set(BatchNorm1d& model, double weight, double mean, int64_t batches) {
  const at::NoGradGuard no_grad;
  model->weight.fill_(weight);
  model->running_mean.fill_(mean);
  model->num_batches_tracked.fill_(batches);
}

double WeightOf(const AveragedModel& average) { return average.module<BatchNorm1dImpl>()->weight[0].item<double>(); }
double MeanOf(const AveragedModel& average) {
  return average.module<BatchNorm1dImpl>()->running_mean[0].item<double>();
}

TEST(AveragedModel, IsTheEqualAverageByDefaultAndCopiesBuffers) {
  BatchNorm1d model(2);
  const auto average = Make(*model);
  for (const int64_t value : {1, 2, 6}) {
    Set(model, value, 10 * value, value);
    average->UpdateParameters(*model);
  }
  EXPECT_EQ(WeightOf(*average), 3);
  EXPECT_EQ(MeanOf(*average), 60);
  EXPECT_EQ(average->module<BatchNorm1dImpl>()->num_batches_tracked.item<int64_t>(), 6);
  EXPECT_EQ(average->n_averaged.item<int64_t>(), 3);
  EXPECT_EQ(model->weight[0].item<double>(), 6) << "the model changed";
}

TEST(AveragedModel, MovesByOneMinusDecayAfterTheFirstUpdate) {
  for (const bool multi : {false, true}) {
    BatchNorm1d model(2);
    AveragedModelOptions options;
    options.use_buffers = true;
    if (multi) options.multi_avg_fn = GetEmaMultiAvgFn(0.75);
    if (!multi) options.avg_fn = GetEmaAvgFn(0.75);
    const auto average = Make(*model, options);
    Set(model, 8, 80, 8);
    average->UpdateParameters(*model);
    EXPECT_EQ(WeightOf(*average), 8);
    Set(model, 16, 160, 16);
    average->UpdateParameters(*model);
    EXPECT_EQ(WeightOf(*average), 10);
    EXPECT_EQ(MeanOf(*average), 100);
    EXPECT_EQ(average->module<BatchNorm1dImpl>()->num_batches_tracked.item<int64_t>(), 10);
  }
}

TEST(AveragedModel, TheStateHasPythonsNamesAndGoesOn) {
  BatchNorm1d model(2);
  const auto first = Make(*model);
  Set(model, 4, 0, 0);
  for (int i = 0; i < 3; ++i) first->UpdateParameters(*model);
  const checkpoint::Value state = checkpoint::StateDict(*first);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.entries()) names.push_back(name.string_value());
  EXPECT_THAT(names, ::testing::ElementsAre("n_averaged", "module.weight", "module.bias", "module.running_mean",
                                            "module.running_var", "module.num_batches_tracked"));
  const auto second = Make(*model);
  ASSERT_EQ(checkpoint::LoadStateDict(*second, state), absl::OkStatus());
  Set(model, 8, 0, 0);
  second->UpdateParameters(*model);
  EXPECT_EQ(WeightOf(*second), 5);
}

TEST(AveragedModel, ErrorsNameTheOptionOrTheModels) {
  BatchNorm1d model(2), other(torch::nn::BatchNormOptions(2).affine(false));
  AveragedModelOptions both;
  both.avg_fn = GetSwaAvgFn();
  both.multi_avg_fn = GetSwaMultiAvgFn();
  EXPECT_EQ(AveragedModel::Create(*model, both).status().message(),
            "AveragedModel: expected avg_fn or multi_avg_fn, not both");
  const auto message = [](auto f) { return std::string(TorchStatus("", f).message()); };
  EXPECT_EQ(message([] { GetEmaAvgFn(1.5); }), "decay is 1.5, expected 0 to 1");
  const auto average = Make(*model);
  EXPECT_EQ(message([&] { average->UpdateParameters(*other); }),
            "the model has 0 parameters or buffers, and its average has 2");
}

TEST(UpdateBatchNorm, AveragesOverTheBatchesAndRestoresMomentumAndMode) {
  BatchNorm1d norm(1);
  norm->eval();
  norm->running_mean.fill_(9);
  UpdateBatchNorm(*norm, [&] {
    for (const double value : {1, 2, 6}) norm->forward(at::full({4, 1}, value));
  });
  EXPECT_NEAR(norm->running_mean.item<double>(), 3, 1e-6);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 3);
  EXPECT_EQ(norm->options.momentum(), 0.1);
  EXPECT_FALSE(norm->is_training());
  EXPECT_THROW(UpdateBatchNorm(*norm, [] { ThrowIfError(absl::InternalError("x")); }), StatusError);
  EXPECT_EQ(norm->options.momentum(), 0.1);
  EXPECT_FALSE(norm->is_training());
}

TEST(UpdateBatchNorm, DoesNotRunAModelWithoutBatchNorm) {
  torch::nn::Linear linear(2, 2);
  UpdateBatchNorm(*linear, [] { FAIL() << "was run"; });
}

}  // namespace
}  // namespace lockstep::optim
