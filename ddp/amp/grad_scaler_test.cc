#include "lockstep/ddp/amp/grad_scaler.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;
using torch::optim::SGD;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

GradScaler Scaler(const GradScalerOptions& options = {}) { return *GradScaler::Create(options); }

// A parameter of 1, and plain gradient descent on it with a rate of 1.
struct Training {
  explicit Training(c10::ScalarType dtype = torch::kFloat) : parameter(torch::ones({2}, dtype).requires_grad_()) {}

  // Its gradient, before it is unscaled, is `gradient`.
  void SetGradient(float gradient) { parameter.mutable_grad() = torch::full({2}, gradient, parameter.dtype()); }
  double value() const { return parameter[0].item<double>(); }

  torch::Tensor parameter;
  SGD optimizer{std::vector<torch::Tensor>{parameter}, 1.0};
};

// One iteration with this gradient; whether it stepped.
bool Iterate(GradScaler& scaler, Training& training, float gradient) {
  scaler.Scale(torch::ones({}));
  training.SetGradient(gradient);
  const absl::StatusOr<bool> stepped = scaler.Step(training.optimizer);
  EXPECT_TRUE(stepped.ok()) << stepped.status();
  EXPECT_EQ(scaler.Update(), absl::OkStatus());
  return *stepped;
}

TEST(GradScaler, HasPyTorchsDefaults) {
  const GradScaler scaler = Scaler();
  const GradScalerState state = scaler.State();
  EXPECT_TRUE(scaler.enabled());
  EXPECT_EQ(scaler.GetScale(), 65536);
  EXPECT_EQ(state.growth_factor, 2);
  EXPECT_EQ(state.backoff_factor, 0.5);
  EXPECT_EQ(state.growth_interval, 2000);
  EXPECT_EQ(state.growth_tracker, 0);
}

TEST(GradScaler, ScalesTheLossAndUnscalesTheGradients) {
  GradScaler scaler = Scaler();
  Training training;
  scaler.Scale((training.parameter * 3).sum()).backward();
  EXPECT_EQ(training.parameter.grad()[0].item<double>(), 3 * 65536.0);
  ASSERT_EQ(scaler.Unscale(training.optimizer), absl::OkStatus());
  EXPECT_EQ(training.parameter.grad()[0].item<double>(), 3);
  EXPECT_TRUE(*scaler.Step(training.optimizer));
  EXPECT_EQ(training.value(), 1 - 3);
}

// The scale is a power of two, so dividing by it rounds nothing.
TEST(GradScaler, LeavesUnscalingToAFusedStep) {
  const torch::Tensor scaled = torch::ones({20}).requires_grad_(), plain = torch::ones({20}).requires_grad_();
  const auto options = optim::AdamWOptions(0.1).fused(true);
  optim::AdamW of_scaled(std::vector<torch::Tensor>{scaled}, options),
      of_plain(std::vector<torch::Tensor>{plain}, options);
  GradScaler scaler = Scaler();
  for (const float gradient : {0.3f, kInfinity, 0.7f}) {
    const double scale = scaler.GetScale();
    scaler.Scale(torch::ones({}));
    scaled.mutable_grad() = torch::full({20}, gradient) * scale;
    plain.mutable_grad() = torch::full({20}, gradient);
    EXPECT_EQ(*scaler.Step(of_scaled), gradient < kInfinity);
    if (gradient < kInfinity) {
      of_plain.step();
      EXPECT_TRUE(scaled.grad().equal(plain.grad())) << "the step has unscaled them";
    }
    EXPECT_TRUE(scaled.equal(plain));
    EXPECT_EQ(scaler.Update(), absl::OkStatus());
    EXPECT_EQ(scaler.GetScale(), gradient < kInfinity ? scale : scale / 2);
  }
  scaler.Scale(torch::ones({}));
  scaled.mutable_grad() = torch::full({20}, 0.2) * scaler.GetScale();
  plain.mutable_grad() = torch::full({20}, 0.2);
  EXPECT_EQ(scaler.Unscale(of_scaled), absl::OkStatus());
  EXPECT_TRUE(*scaler.Step(of_scaled));
  of_plain.step();
  EXPECT_TRUE(scaled.equal(plain)) << "gradients were unscaled before";
}

TEST(GradScaler, SkipsAStepThatOverflowedAndHalvesTheScale) {
  GradScaler scaler = Scaler();
  Training training;
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    const double before = scaler.GetScale();
    EXPECT_FALSE(Iterate(scaler, training, bad));
    EXPECT_EQ(training.value(), 1);
    EXPECT_EQ(scaler.GetScale(), before / 2);
  }
  EXPECT_TRUE(Iterate(scaler, training, static_cast<float>(scaler.GetScale())));
  EXPECT_EQ(training.value(), 0);
}

TEST(GradScaler, GrowsAfterAnIntervalWithoutOverflow) {
  GradScalerOptions options;
  options.init_scale = 4;
  options.growth_interval = 3;
  GradScaler scaler = Scaler(options);
  Training training;
  // By the rule: after each 3 good steps in a row it doubles; a bad one halves it and starts counting anew.
  const std::vector<std::pair<bool, double>> iterations = {{true, 4},  {true, 4}, {true, 8}, {true, 8}, {true, 8},
                                                           {false, 4}, {true, 4}, {true, 4}, {true, 8}};
  const std::vector<int64_t> trackers = {1, 2, 0, 1, 2, 0, 1, 2, 0};
  for (size_t i = 0; i < iterations.size(); ++i) {
    EXPECT_EQ(Iterate(scaler, training, iterations[i].first ? 1 : kInfinity), iterations[i].first) << i;
    EXPECT_EQ(scaler.GetScale(), iterations[i].second) << i;
    EXPECT_EQ(scaler.State().growth_tracker, trackers[i]) << i;
  }
}

TEST(GradScaler, DoesNotGrowToInfinity) {
  GradScalerOptions options;
  options.init_scale = std::ldexp(1.0, 127);
  options.growth_interval = 1;
  GradScaler scaler = Scaler(options);
  Training training;
  EXPECT_TRUE(Iterate(scaler, training, 1));
  EXPECT_EQ(scaler.GetScale(), options.init_scale);
}

TEST(GradScaler, SkipsOnlyTheOptimizerThatOverflowed) {
  GradScaler scaler = Scaler();
  Training good, bad;
  scaler.Scale(torch::ones({}));
  good.SetGradient(65536);
  bad.SetGradient(kInfinity);
  EXPECT_TRUE(*scaler.Step(good.optimizer));
  EXPECT_FALSE(*scaler.Step(bad.optimizer));
  EXPECT_EQ(scaler.Update(), absl::OkStatus());
  EXPECT_EQ(good.value(), 0);
  EXPECT_EQ(bad.value(), 1);
  EXPECT_EQ(scaler.GetScale(), 32768);
}

TEST(GradScaler, TakesGradientsOfSeveralDtypesAndSparseOnes) {
  GradScaler scaler = Scaler();
  const auto zeros = [](c10::ScalarType dtype) { return torch::zeros({2, 1}, dtype).requires_grad_(); };
  std::vector<torch::Tensor> parameters = {zeros(torch::kFloat), zeros(torch::kDouble), zeros(torch::kBFloat16),
                                           zeros(torch::kFloat)};
  for (int i = 0; i < 3; ++i) parameters[i].mutable_grad() = torch::full({2, 1}, 65536, parameters[i].dtype());
  parameters[3].mutable_grad() =
      torch::sparse_coo_tensor(torch::tensor({{1}}), torch::full({1, 1}, 65536.0F), {2, 1}).coalesce();
  SGD optimizer(parameters, 1.0);
  scaler.Scale(torch::ones({}));
  ASSERT_EQ(scaler.Unscale(optimizer), absl::OkStatus());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(parameters[i].grad().equal(torch::ones_like(parameters[i]))) << i;
  EXPECT_TRUE(parameters[3].grad().to_dense().equal(torch::tensor({{0.0F}, {1.0F}})));
}

TEST(GradScaler, UnscalesATiedWeightOnce) {
  GradScaler scaler = Scaler();
  const torch::Tensor tied = torch::zeros({2}).requires_grad_();
  tied.mutable_grad() = torch::full({2}, 65536.0F);
  SGD optimizer(std::vector<torch::Tensor>{tied, tied}, 1.0);
  scaler.Scale(torch::ones({}));
  ASSERT_EQ(scaler.Unscale(optimizer), absl::OkStatus());
  EXPECT_TRUE(tied.grad().equal(torch::ones({2})));
}

TEST(GradScaler, RefusesCallsOutOfOrder) {
  GradScaler scaler = Scaler();
  Training training;
  training.SetGradient(65536);
  const auto refused = [](absl::string_view message) { return absl::FailedPreconditionError(message); };
  EXPECT_EQ(scaler.Unscale(training.optimizer), refused("GradScaler: Unscale was called before any Scale"));
  EXPECT_EQ(scaler.Step(training.optimizer).status(), refused("GradScaler: Unscale was called before any Scale"));
  EXPECT_EQ(scaler.Update(), refused("GradScaler: Update was called before any Scale"));
  scaler.Scale(torch::ones({}));
  EXPECT_EQ(scaler.Update(), refused("GradScaler: Update was called before any optimizer's Unscale or Step"));
  ASSERT_EQ(scaler.Unscale(training.optimizer), absl::OkStatus());
  EXPECT_EQ(scaler.Unscale(training.optimizer),
            refused("GradScaler: Unscale was called twice for this optimizer since the last Update"));
  EXPECT_EQ(training.parameter.grad()[0].item<double>(), 1);
  ASSERT_TRUE(*scaler.Step(training.optimizer));
  EXPECT_EQ(scaler.Unscale(training.optimizer),
            refused("GradScaler: Unscale was called after Step for this optimizer"));
  EXPECT_EQ(scaler.Step(training.optimizer).status(),
            refused("GradScaler: Step was called twice for this optimizer since the last Update"));
  EXPECT_EQ(training.value(), 0);
  ASSERT_EQ(scaler.Update(), absl::OkStatus());
  EXPECT_EQ(scaler.Unscale(training.optimizer), absl::OkStatus());
}

TEST(GradScaler, RefusesGradientsInHalfAndOptimizersWithoutGradients) {
  GradScaler scaler = Scaler();
  Training half(torch::kHalf), none;
  half.SetGradient(1);
  scaler.Scale(torch::ones({}));
  EXPECT_EQ(scaler.Unscale(half.optimizer),
            absl::FailedPreconditionError("GradScaler: expected gradients in float, found half for parameter 0 of "
                                          "parameter group 0; keep parameters in float and compute under Autocast"));
  EXPECT_EQ(scaler.Step(none.optimizer).status(),
            absl::FailedPreconditionError("GradScaler: no parameter of this optimizer has a gradient"));
}

TEST(GradScaler, RefusesOptionsOutOfRange) {
  const auto message = [](const GradScalerOptions& options) {
    return std::string(GradScaler::Create(options).status().message());
  };
  GradScalerOptions options;
  options.growth_factor = 1;
  EXPECT_EQ(message(options), "GradScaler: expected a growth_factor of more than 1, found 1");
  options = {};
  options.backoff_factor = 1;
  EXPECT_EQ(message(options), "GradScaler: expected a backoff_factor between 0 and 1, found 1");
  options = {};
  options.init_scale = 0;
  EXPECT_EQ(message(options), "GradScaler: expected a finite scale of more than 0, found 0");
  options = {};
  options.growth_interval = 0;
  EXPECT_EQ(message(options), "GradScaler: expected a growth_interval of at least 1, found 0");
}

TEST(GradScaler, SetsTheScaleByHand) {
  GradScaler scaler = Scaler();
  scaler.Scale(torch::ones({}));
  EXPECT_EQ(scaler.Update(8), absl::OkStatus());
  EXPECT_EQ(scaler.Scale(torch::ones({})).item<double>(), 8);
  EXPECT_EQ(scaler.Update(-1).code(), absl::StatusCode::kInvalidArgument);
}

TEST(GradScaler, GoesOnFromItsState) {
  GradScalerOptions options;
  options.init_scale = 16;
  options.growth_interval = 3;
  GradScaler first = Scaler(options);
  Training training;
  EXPECT_FALSE(Iterate(first, training, kInfinity));
  EXPECT_TRUE(Iterate(first, training, 1));
  GradScaler fresh = Scaler();
  GradScaler used = Scaler();
  EXPECT_TRUE(Iterate(used, training, 1));
  for (GradScaler* scaler : {&fresh, &used}) {
    ASSERT_EQ(scaler->LoadState(first.State()), absl::OkStatus());
    EXPECT_EQ(scaler->GetScale(), 8);
    EXPECT_EQ(scaler->State().growth_tracker, 1);
    EXPECT_TRUE(Iterate(*scaler, training, 1));
    EXPECT_TRUE(Iterate(*scaler, training, 1));
    EXPECT_EQ(scaler->GetScale(), 16);
  }
  EXPECT_EQ(fresh.LoadState({}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(GradScaler, DoesNothingIfNotEnabled) {
  GradScalerOptions options;
  options.enabled = false;
  GradScaler scaler = Scaler(options);
  Training training;
  const torch::Tensor loss = torch::ones({});
  EXPECT_TRUE(scaler.Scale(loss).is_same(loss));
  training.SetGradient(0.25);
  EXPECT_EQ(scaler.Unscale(training.optimizer), absl::OkStatus());
  EXPECT_TRUE(*scaler.Step(training.optimizer));
  EXPECT_EQ(scaler.Update(), absl::OkStatus());
  EXPECT_EQ(training.value(), 0.75);
  EXPECT_EQ(scaler.GetScale(), 1);
}

TEST(GradScaler, SkipsTheStepOnAllRanksOfItsGroup) {
  const auto body = [](ProcessGroup& group) {
    GradScalerOptions options;
    options.group = &group;
    GradScaler scaler = Scaler(options);
    Training training;
    EXPECT_FALSE(Iterate(scaler, training, group.rank() == 1 ? kInfinity : 1));
    EXPECT_EQ(training.value(), 1);
    EXPECT_EQ(scaler.GetScale(), 32768);
    EXPECT_TRUE(Iterate(scaler, training, 32768));
    EXPECT_EQ(training.value(), 0);
  };
  EXPECT_EQ(RunRanksOk(3, body), absl::OkStatus());
}

TEST(GradScaler, LetsARankOfItsGroupHaveNoGradients) {
  const auto body = [](ProcessGroup& group) {
    GradScalerOptions options;
    options.group = &group;
    GradScaler scaler = Scaler(options);
    Training training;
    scaler.Scale(torch::ones({}));
    if (group.rank() == 0) training.SetGradient(kInfinity);
    const absl::StatusOr<bool> stepped = scaler.Step(training.optimizer);
    ASSERT_TRUE(stepped.ok()) << stepped.status();
    EXPECT_FALSE(*stepped);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

// The loss of a small regression after training under autocast, and how many steps were skipped.
std::pair<double, int> Train(c10::ScalarType dtype, GradScaler& scaler) {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(4, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
  SGD optimizer(net->parameters(), 0.1);
  const torch::Tensor inputs = torch::randn({64, 4});
  const torch::Tensor targets = inputs.sum(1, /*keepdim=*/true).sin();
  int skipped = 0;
  torch::Tensor loss;
  for (int step = 0; step < 300; ++step) {
    optimizer.zero_grad();
    {
      const Autocast autocast(torch::kCPU, dtype);
      loss = torch::mse_loss(net->forward(inputs).to(torch::kFloat), targets);
    }
    scaler.Scale(loss).backward();
    skipped += *scaler.Step(optimizer) ? 0 : 1;
    EXPECT_EQ(scaler.Update(), absl::OkStatus());
  }
  return {loss.item<double>(), skipped};
}

TEST(GradScaler, TrainsInBfloat16) {
  GradScalerOptions options;
  options.enabled = false;
  GradScaler scaler = Scaler(options);
  EXPECT_LT(Train(torch::kBFloat16, scaler).first, 0.05);
}

TEST(GradScaler, TrainsInHalfAndFindsAScaleThatDoesNotOverflow) {
  GradScalerOptions options;
  options.init_scale = std::ldexp(1.0, 30);  // far beyond half's 65504
  GradScaler scaler = Scaler(options);
  const auto [loss, skipped] = Train(torch::kHalf, scaler);
  EXPECT_LT(loss, 0.05);
  EXPECT_GT(skipped, 5);
  EXPECT_LT(skipped, 30);
  EXPECT_EQ(scaler.GetScale(), std::ldexp(1.0, 30 - skipped));
}

}  // namespace
}  // namespace lockstep::ddp
