// Options, refusals and states of the optimizers. optim/peer compares their steps with Python's.

#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>
#include <torch/serialize.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/optim/adafactor.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::optim {
namespace {

using ::testing::StartsWith;
using torch::optim::OptimizerParamGroup;
using Parameters = std::vector<at::Tensor>;

Parameters Made() {
  return {at::full({3}, 0.3).set_requires_grad(true), at::full({2, 2}, -0.7).set_requires_grad(true)};
}

// The first line of what `f` throws.
std::string Thrown(const std::function<void()>& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing";
}

template <typename T, typename O>
std::string Refusal(const O& options) {
  return Thrown([&] { T(Made(), options); });
}

void SetGradients(const Parameters& parameters, int step) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = (parameter.detach() * step).cos();
}

void Train(torch::optim::Optimizer& optimizer, const Parameters& parameters, int first, int last) {
  for (int step = first; step < last; ++step) {
    SetGradients(parameters, step);
    optimizer.step();
  }
}

bool SameBits(const Parameters& a, const Parameters& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

TEST(Options, AreRefusedInPythonsWords) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Refusal<SGD>(SGDOptions(-1)), "Invalid learning rate: -1");
  EXPECT_EQ(Refusal<SGD>(SGDOptions(nan)), "Invalid learning rate: nan");
  EXPECT_EQ(Refusal<SGD>(SGDOptions(0.1).momentum(-0.5)), "Invalid momentum value: -0.5");
  EXPECT_EQ(Refusal<SGD>(SGDOptions(0.1).weight_decay(-1)), "Invalid weight_decay value: -1");
  EXPECT_EQ(Refusal<SGD>(SGDOptions(0.1).nesterov(true)), "Nesterov momentum requires a momentum and zero dampening");
  EXPECT_EQ(Refusal<SGD>(SGDOptions(0.1).fused(true).foreach (true)),
            "`fused` and `foreach` cannot be `True` together.");
  EXPECT_EQ(Refusal<AdamW>(AdamWOptions(nan)), "Invalid learning rate: nan");
  EXPECT_EQ(Refusal<Adam>(AdamOptions().eps(-1)), "Invalid epsilon value: -1");
  EXPECT_EQ(Refusal<AdamW>(AdamWOptions().betas({1.5, 0.9})), "Invalid beta parameter at index 0: 1.5");
  EXPECT_EQ(Refusal<Adam>(AdamOptions().betas({0.9, 1})), "Invalid beta parameter at index 1: 1");
  EXPECT_EQ(Refusal<AdamW>(AdamWOptions().foreach (true).lr(at::full({}, 0.1))),
            "lr as a Tensor is not supported for capturable=False and foreach=True");
  EXPECT_EQ(Refusal<SGD>(SGDOptions(0.1)), "nothing");
  EXPECT_EQ(Thrown([] { SGDOptions().lr(at::ones({2})); }), "Tensor lr must be 1-element");
}

TEST(Options, OfAGroupAreCheckedToo) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(Made(), std::make_unique<AdamWOptions>(AdamWOptions().eps(-2)));
  EXPECT_EQ(Thrown([&] { AdamW{groups}; }), "Invalid epsilon value: -2");
}

TEST(Optimizer, RefusesParametersThatAreNoLeavesOrThereTwice) {
  const at::Tensor a = at::ones({2}).set_requires_grad(true);
  const std::string twice = "some parameters appear in more than one parameter group, or twice in one";
  EXPECT_EQ(Thrown([&] { SGD(Parameters{a, a}); }), twice);
  const std::vector<OptimizerParamGroup> groups = {OptimizerParamGroup({a}), OptimizerParamGroup({a})};
  EXPECT_EQ(Thrown([&] { SGD{groups}; }), twice);
  EXPECT_EQ(Thrown([&] { SGD(Parameters{a * 2}); }), "can't optimize a non-leaf Tensor");
}

TEST(Optimizer, RefusesGradientsAndDevicesThatPythonRefuses) {
  const auto step_with = [](auto optimizer, const Parameters& parameters, const at::Tensor& gradient) {
    parameters[0].mutable_grad() = gradient;
    return Thrown([&] { optimizer.step(); });
  };
  const Parameters parameters = Made();
  const at::Tensor sparse = at::ones({3}).to_sparse();
  EXPECT_EQ(step_with(AdamW(parameters), parameters, sparse),
            "Adam does not support sparse gradients, please consider SparseAdam instead");
  EXPECT_EQ(step_with(SGD(parameters, SGDOptions().fused(true)), parameters, sparse),
            "`_fused_sgd` does not support sparse gradients");
  EXPECT_THAT(step_with(AdamW(parameters, AdamWOptions().capturable(true)), parameters, at::ones({3})),
              StartsWith("If capturable=True, params and state_steps must be on supported devices"));
  const Parameters complex = {at::ones({3}, at::kComplexFloat).set_requires_grad(true)};
  EXPECT_THAT(step_with(Adam(complex, AdamOptions().fused(true)), complex, at::ones({3}, at::kComplexFloat)),
              StartsWith("`fused=True` requires all the params to be floating point Tensors of supported devices"));
}

TEST(Optimizer, StepsSparseMomentumAsADenseOne) {
  const Parameters dense = {at::ones({5, 2}).set_requires_grad(true)},
                   sparse = {at::ones({5, 2}).set_requires_grad(true)};
  SGD of_dense(dense, SGDOptions(0.1).momentum(0.5)), of_sparse(sparse, SGDOptions(0.1).momentum(0.5));
  for (const int row : {1, 3, 1}) {
    at::Tensor gradient = at::zeros({5, 2});
    gradient[row].fill_(0.25);
    dense[0].mutable_grad() = gradient;
    sparse[0].mutable_grad() = gradient.to_sparse(1);
    of_dense.step();
    of_sparse.step();
  }
  EXPECT_TRUE(SameBits(dense, sparse));
  EXPECT_LT(sparse[0].select(0, 3).min().item<double>(), 1);
}

TEST(Optimizer, ReturnsTheLossOfAClosureThatHasGradients) {
  const Parameters parameters = Made();
  SGD sgd(parameters, SGDOptions(1));
  const at::Tensor loss = sgd.step([&] {
    const at::Tensor sum = parameters[0].sum() + parameters[1].sum();
    sum.backward();
    return sum;
  });
  EXPECT_TRUE(loss.requires_grad());
  EXPECT_TRUE(parameters[0].equal(at::full({3}, 0.3) - 1));
  EXPECT_FALSE(sgd.step().defined());
}

TEST(Optimizer, KeepsItsRateInATensorThatSchedulersFill) {
  const at::Tensor rate = at::full({}, 0.5);
  const Parameters parameters = Made();
  SGD sgd(parameters, SGDOptions().lr(rate));
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.5);
  sgd.param_groups()[0].options().set_lr(0.25);
  EXPECT_EQ(rate.item<double>(), 0.25);
  SetGradients(parameters, 0);
  sgd.step();
  EXPECT_TRUE(parameters[0].equal(at::full({3}, 0.3) - 0.25));
}

// Trains for four steps, and again with torch::save() and torch::load() after two.
template <typename T, typename O>
void ExpectContinues(const O& options) {
  const Parameters stayed = Made(), moved = Made();
  T whole(stayed, options), first(moved, options), then(moved, O(9));
  Train(whole, stayed, 0, 4);
  Train(first, moved, 0, 2);
  std::stringstream file;
  torch::save(first, file);
  torch::load(then, file);
  Train(then, moved, 2, 4);
  EXPECT_TRUE(SameBits(stayed, moved));
}

TEST(Optimizer, ContinuesAfterTorchSaveAndLoad) {
  ExpectContinues<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
  ExpectContinues<Adam>(AdamOptions(0.1).amsgrad(true).betas({0.5, 0.6}).maximize(true).foreach (false));
  ExpectContinues<AdamW>(AdamWOptions(0.1).lr(at::full({}, 0.02)));
  ExpectContinues<Adafactor>(AdafactorOptions(0.1).weight_decay(0.01).eps({std::nullopt, 0.1}));
}

TEST(Optimizer, DividesGradientsByTheScaleInFusedStepsOnly) {
  const Parameters plain = Made(), scaled = Made();
  AdamW of_plain(plain, AdamWOptions(0.1).fused(true)), of_scaled(scaled, AdamWOptions(0.1).fused(true));
  EXPECT_TRUE(of_scaled.StepSupportsAmpScaling());
  SetGradients(plain, 1);
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i].mutable_grad() = plain[i].grad() * 1024;
  of_plain.step();
  of_scaled.SetGradScale(at::full({1}, 1024.0f), at::zeros({1}));
  of_scaled.step();
  EXPECT_TRUE(SameBits(plain, scaled));

  of_scaled.SetGradScale(at::full({1}, 1024.0f), at::ones({1}));
  of_scaled.step();
  EXPECT_TRUE(SameBits(plain, scaled)) << "a step with an infinity is none";
  const auto& state = static_cast<const State&>(*of_scaled.state().at(scaled[0].unsafeGetTensorImpl()));
  EXPECT_EQ(state.tensors[0].item<float>(), 1) << "and is not counted";

  AdamW loop(Made());
  EXPECT_FALSE(loop.StepSupportsAmpScaling());
  loop.SetGradScale(at::full({1}, 1024.0f), at::zeros({1}));
  EXPECT_EQ(Thrown([&] { loop.step(); }), "Expected grad_scale and found_inf to be None");
}

}  // namespace
}  // namespace lockstep::optim
