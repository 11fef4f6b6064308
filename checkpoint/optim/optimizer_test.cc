#include "lockstep/checkpoint/optim/optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;
using torch::optim::Adagrad;
using torch::optim::AdagradOptions;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::LBFGS;
using torch::optim::LBFGSOptions;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<at::Tensor>&)>;

// Two groups with different learning rates.
template <typename Kind, typename Options>
Make InTwoGroups(const Options& options) {
  return [options](const std::vector<at::Tensor>& parameters) {
    Options second = options;
    second.lr(options.lr() / 10);
    return std::make_unique<Kind>(
        std::vector<OptimizerParamGroup>{OptimizerParamGroup({parameters[0], parameters[1]}),
                                         OptimizerParamGroup({parameters[2]}, std::make_unique<Options>(second))},
        options);
  };
}

Make MakeLbfgs(const LBFGSOptions& options) {
  return [options](const std::vector<at::Tensor>& parameters) { return std::make_unique<LBFGS>(parameters, options); };
}

const Make kSgd = InTwoGroups<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(1e-4).nesterov(true));
const Make kAdam = InTwoGroups<Adam>(AdamOptions(0.1).amsgrad(true));
const Make kAdamW = InTwoGroups<AdamW>(AdamWOptions(0.1));
const Make kAdagrad = InTwoGroups<Adagrad>(AdagradOptions(0.1).lr_decay(0.01).initial_accumulator_value(0.1));
const Make kRmsprop = InTwoGroups<RMSprop>(RMSpropOptions(0.1).momentum(0.9).centered(true));
const Make kLbfgs = MakeLbfgs(LBFGSOptions(0.3).max_iter(3).history_size(4));

struct Case {
  const char* name;
  Make make;
  Make other;  // other options, which loading must replace
};

std::vector<Case> Cases() {
  return {{"SGD", kSgd, InTwoGroups<SGD>(SGDOptions(5).momentum(0.1))},
          {"SGD without momentum", InTwoGroups<SGD>(SGDOptions(0.1)), kSgd},
          {"Adam", kAdam, InTwoGroups<Adam>(AdamOptions(5).betas({0.5, 0.5}).eps(1).weight_decay(1))},
          {"Adam without amsgrad", InTwoGroups<Adam>(AdamOptions(0.1)), kAdam},
          {"AdamW", kAdamW, InTwoGroups<AdamW>(AdamWOptions(5).betas({0.5, 0.5}).eps(1).amsgrad(true))},
          {"Adagrad", kAdagrad, InTwoGroups<Adagrad>(AdagradOptions(5).eps(1).weight_decay(1))},
          {"RMSprop", kRmsprop, InTwoGroups<RMSprop>(RMSpropOptions(5).alpha(0.5).eps(1).weight_decay(1))},
          {"plain RMSprop", InTwoGroups<RMSprop>(RMSpropOptions(0.1)), kRmsprop},
          {"LBFGS", kLbfgs, MakeLbfgs(LBFGSOptions(5).max_iter(9).tolerance_grad(1).tolerance_change(1))},
          {"LBFGS with line search", MakeLbfgs(LBFGSOptions(0.3).max_iter(2).line_search_fn("strong_wolfe")), kLbfgs}};
}

// Minimizes the sum of -cos(parameter), whose gradient is sin(parameter).
struct Training {
  explicit Training(const Make& make)
      : parameters{at::full({3}, 0.3).set_requires_grad(true), at::full({2, 2}, -0.7).set_requires_grad(true),
                   at::full({1}, 0.1).set_requires_grad(true)},
        optimizer(make(parameters)) {}

  void Steps(int count) {
    const auto closure = [this] {
      const c10::NoGradGuard no_grad;
      at::Tensor loss = at::scalar_tensor(0.0, at::kFloat);
      for (at::Tensor& parameter : parameters) {
        parameter.mutable_grad() = parameter.sin();
        loss -= parameter.cos().sum();
      }
      return loss;
    };
    for (int i = 0; i < count; ++i) optimizer->step(closure);
  }

  Value State() const { return *OptimizerStateDict(*optimizer); }
  absl::Status Load(const Value& state) { return LoadOptimizerStateDict(*optimizer, state); }
  std::string Error(const Value& state) { return std::string(Load(state).message()); }

  Value Parameters() const {
    return Value::List(
        {parameters[0].clone().detach(), parameters[1].clone().detach(), parameters[2].clone().detach()});
  }

  void CopyFrom(const Training& other) {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(other.parameters[i]);
  }

  std::vector<at::Tensor> parameters;
  std::unique_ptr<Optimizer> optimizer;
};

Value ThroughAFile(const Value& value) {
  const std::string path = testing::TempDir() + "/optimizer.pt";
  EXPECT_TRUE(Save(path, value).ok());
  return *Load(path);
}

std::string Keys(const Value& dict) {
  return absl::StrJoin(dict.entries(), " ",
                       [](std::string* out, const Value::Entry& entry) { out->append(entry.first.string_value()); });
}

TEST(Optimizer, TensorsAreCopiedUnlessAskedNotTo) {
  Training from(kSgd);
  from.Steps(1);
  const Value state = from.State();
  const auto memory = [](const Value& value) {
    return GetTensor(value, {"state", 0, "momentum_buffer"})->const_data_ptr();
  };
  for (const bool copy : {true, false}) {
    Training to(kSgd);
    ASSERT_TRUE(LoadOptimizerStateDict(*to.optimizer, state, copy).ok());
    EXPECT_EQ(memory(to.State()) != memory(state), copy);
    EXPECT_TRUE(Identical(to.State(), state));
  }
}

TEST(Optimizer, HasPythonsForm) {
  Training training(kSgd);
  training.Steps(1);
  const Value value = training.State();
  EXPECT_EQ(GetTensor(value, {"state", 2, "momentum_buffer"})->sizes(), (std::vector<int64_t>{1}));
  EXPECT_TRUE(Identical(value.Find("param_groups")->items()[0], Value::Dict({{"lr", 0.1},
                                                                             {"momentum", 0.9},
                                                                             {"dampening", 0.0},
                                                                             {"weight_decay", 1e-4},
                                                                             {"nesterov", true},
                                                                             {"maximize", false},
                                                                             {"foreach", Value()},
                                                                             {"differentiable", false},
                                                                             {"fused", Value()},
                                                                             {"params", Value::List({0, 1})}})));
  EXPECT_TRUE(Identical(*Get(value, {"param_groups", 1, "params"}), Value::List({2})));
}

TEST(Optimizer, HasPythonsKeysInPythonsOrder) {
  const auto keys = [](const Make& make, const KeyPath& path) {
    Training training(make);
    training.Steps(2);
    return Keys(*Get(training.State(), path));
  };
  const KeyPath group = {"param_groups", 0}, state = {"state", 0};
  EXPECT_EQ(keys(kAdam, group),
            "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused "
            "decoupled_weight_decay params");
  EXPECT_EQ(keys(kAdagrad, group),
            "lr lr_decay eps weight_decay initial_accumulator_value foreach maximize differentiable fused params");
  EXPECT_EQ(keys(kRmsprop, group),
            "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable params");
  EXPECT_EQ(keys(kLbfgs, group),
            "lr max_iter max_eval tolerance_grad tolerance_change history_size line_search_fn params");
  EXPECT_EQ(keys(kAdam, state), "step exp_avg exp_avg_sq max_exp_avg_sq");
  EXPECT_EQ(keys(kAdamW, state), "step exp_avg exp_avg_sq");
  EXPECT_EQ(keys(kAdagrad, state), "step sum");
  EXPECT_EQ(keys(kRmsprop, state), "step square_avg momentum_buffer grad_avg");
  EXPECT_EQ(keys(kLbfgs, state), "func_evals n_iter al d t old_dirs old_stps ro H_diag prev_flat_grad prev_loss");
}

TEST(Optimizer, StepsAreCountedInAFloatTensorAsInPython) {
  Training training(kAdam);
  training.Steps(3);
  EXPECT_TRUE(Identical(*Get(training.State(), {"state", 0, "step"}), at::scalar_tensor(3.0, at::kFloat)));
}

TEST(Optimizer, OnlyAdamWSaysThatItsDecayIsDecoupled) {
  EXPECT_FALSE(*GetBool(Training(kAdam).State(), {"param_groups", 0, "decoupled_weight_decay"}));
  EXPECT_TRUE(*GetBool(Training(kAdamW).State(), {"param_groups", 0, "decoupled_weight_decay"}));
}

TEST(Optimizer, ContinuesToTheBit) {
  for (const Case& test : Cases()) {
    for (const int before : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(test.name, ", saved after ", before, " steps"));
      Training whole(test.make), first(test.make), second(test.other);
      whole.Steps(6);
      first.Steps(before);
      second.Steps(1);  // state that must be replaced
      second.CopyFrom(first);
      ASSERT_EQ(second.Load(ThroughAFile(first.State())), absl::OkStatus());
      EXPECT_TRUE(Identical(second.State(), first.State()));
      second.Steps(6 - before);
      EXPECT_TRUE(Identical(second.Parameters(), whole.Parameters()));
      EXPECT_TRUE(Identical(second.State(), whole.State()));
    }
  }
}

TEST(Optimizer, WhatWasLoadedIsNotShared) {
  Training from(kSgd), to(kSgd);
  from.Steps(2);
  const Value state = from.State();
  ASSERT_TRUE(to.Load(state).ok());
  EXPECT_FALSE(GetTensor(to.State(), {"state", 0, "momentum_buffer"})
                   ->is_alias_of(*GetTensor(state, {"state", 0, "momentum_buffer"})));
}

TEST(Optimizer, AFreshOneHasNoStateAndLoadingItForgets) {
  for (const Make& make : {kSgd, kAdam, kAdamW, kRmsprop, kLbfgs}) {
    Training fresh(make), trained(make);
    trained.Steps(2);
    const Value state = ThroughAFile(fresh.State());
    EXPECT_EQ(state.Find("state")->size(), 0);
    ASSERT_EQ(trained.Load(state), absl::OkStatus());
    EXPECT_EQ(trained.State().Find("state")->size(), 0);
  }
}

TEST(Optimizer, AFreshAdagradHasStateAsInPython) {
  const Value state = Training(kAdagrad).State();
  EXPECT_TRUE(Identical(*Get(state, {"state", 0, "sum"}), at::full({3}, 0.1)));
  EXPECT_TRUE(Identical(*Get(state, {"state", 2, "step"}), at::scalar_tensor(0.0, at::kFloat)));
}

TEST(Optimizer, AnLbfgsThatStartsAtTheOptimumHasCountersOnly) {
  Training training(kLbfgs), other(kLbfgs);
  {
    const c10::NoGradGuard no_grad;
    for (at::Tensor& parameter : training.parameters) parameter.zero_();
  }
  training.Steps(2);
  EXPECT_EQ(Keys(*Get(training.State(), {"state", 0})), "func_evals n_iter");
  ASSERT_EQ(other.Load(ThroughAFile(training.State())), absl::OkStatus());
  EXPECT_TRUE(Identical(other.State(), training.State()));
}

struct DerivedAdam final : Adam {
  using Adam::Adam;
};

TEST(Optimizer, ADerivedClassIsItsBase) {
  Training derived([](const std::vector<at::Tensor>& parameters) {
    return std::make_unique<DerivedAdam>(parameters, AdamOptions(0.1));
  });
  derived.Steps(2);
  const Value state = ThroughAFile(derived.State());
  derived.Steps(1);
  ASSERT_EQ(derived.Load(state), absl::OkStatus());
  EXPECT_TRUE(Identical(derived.State(), state));
}

struct Adadelta final : Optimizer {
  using Optimizer::Optimizer;
  at::Tensor step(LossClosure) override { return {}; }
};

TEST(Optimizer, OthersAreUnimplementedByName) {
  Adadelta optimizer(std::vector<at::Tensor>{at::ones({1})}, std::make_unique<SGDOptions>(0.1));
  const absl::Status status = OptimizerStateDict(optimizer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Adadelta is not supported; that of torch::optim::SGD, torch::optim::Adam, "));
  EXPECT_EQ(LoadOptimizerStateDict(optimizer, Value()), status);
}

}  // namespace
}  // namespace lockstep::checkpoint
