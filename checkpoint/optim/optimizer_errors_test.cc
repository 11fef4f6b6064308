// Values that are not the state of the optimizer: the error names the key, and nothing changes.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;
using torch::optim::Adagrad;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::LBFGS;
using torch::optim::LBFGSOptions;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

// `value` with the entry at `path` replaced by `to`, or removed.
Value With(const Value& value, const std::vector<Value>& path, const Value* to, size_t at = 0) {
  if (at == path.size()) return *to;
  const bool last = at + 1 == path.size();
  if (value.is_list()) {
    std::vector<Value> items = value.items();
    items[path[at].int_value()] = With(items[path[at].int_value()], path, to, at + 1);
    return Value::List(items);
  }
  std::vector<Value::Entry> entries;
  bool found = false;
  for (const auto& [key, item] : value.entries()) {
    const bool here = Identical(key, path[at]);
    found |= here;
    if (!here) entries.emplace_back(key, item);
    if (here && !(last && !to)) entries.emplace_back(key, With(item, path, to, at + 1));
  }
  if (!found) entries.emplace_back(path[at], *to);
  return Value::Dict(entries);
}

Value With(const Value& value, const std::vector<Value>& path, const Value& to) { return With(value, path, &to); }
Value Without(const Value& value, const std::vector<Value>& path) { return With(value, path, nullptr); }

std::vector<at::Tensor> Parameters() {
  return {at::full({3}, 0.3).set_requires_grad(true), at::full({2, 2}, -0.7).set_requires_grad(true)};
}

// An optimizer after two steps.
template <typename Kind, typename Options>
struct Stepped {
  explicit Stepped(Options options) : parameters(Parameters()), optimizer(parameters, options) {
    const auto closure = [this] {
      for (at::Tensor& parameter : parameters) parameter.mutable_grad() = parameter.detach().sin();
      return -(parameters[0].detach().cos().sum() + parameters[1].detach().cos().sum());
    };
    optimizer.step(closure);
    optimizer.step(closure);
    state = *OptimizerStateDict(optimizer);
  }

  // The message. Checks that the error changed nothing.
  std::string Error(const Value& value, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = LoadOptimizerStateDict(optimizer, value);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(Identical(*OptimizerStateDict(optimizer), state));
    return std::string(status.message());
  }

  std::vector<at::Tensor> parameters;
  Kind optimizer;
  Value state;
};

using SteppedSgd = Stepped<SGD, SGDOptions>;
using SteppedAdam = Stepped<Adam, AdamOptions>;
using SteppedLbfgs = Stepped<LBFGS, LBFGSOptions>;

TEST(OptimizerErrors, GroupsThatDoNotFit) {
  SteppedSgd sgd(SGDOptions(0.1).momentum(0.9));
  EXPECT_THAT(sgd.Error(3), HasSubstr("found int 3"));
  EXPECT_EQ(sgd.Error(Without(sgd.state, {"param_groups"})), "[\"param_groups\"]: no such key; the dict has \"state\"");
  EXPECT_EQ(sgd.Error(With(sgd.state, {"param_groups"}, Value::List())),
            "[\"param_groups\"]: 0 groups, the optimizer has 1");
  EXPECT_EQ(sgd.Error(With(sgd.state, {"param_groups", 0, "params"}, Value::List({0}))),
            "[\"param_groups\"][0]: [\"params\"]: 1 parameters, the optimizer has 2");
  EXPECT_EQ(sgd.Error(With(sgd.state, {"param_groups", 0}, 4)),
            "[\"param_groups\"][0]: torch::optim::SGD: [\"lr\"]: expected to look into a dict, found int 4");
}

TEST(OptimizerErrors, OptionsOfAWrongTypeOrMissing) {
  SteppedAdam adam(AdamOptions(0.1));
  const auto with = [&](const char* key, const Value& to) {
    return adam.Error(With(adam.state, {"param_groups", 0, key}, to));
  };
  EXPECT_EQ(with("lr", "fast"),
            "[\"param_groups\"][0]: torch::optim::Adam: [\"lr\"]: expected float, found str \"fast\"");
  EXPECT_EQ(with("amsgrad", 1), "[\"param_groups\"][0]: torch::optim::Adam: [\"amsgrad\"]: expected bool, found int 1");
  EXPECT_EQ(with("betas", Value::Tuple({0.9})),
            "[\"param_groups\"][0]: torch::optim::Adam: [\"betas\"]: expected two numbers, found tuple");
  EXPECT_EQ(with("betas", Value::Tuple({0.9, "b"})),
            "[\"param_groups\"][0]: torch::optim::Adam: [\"betas\"]: [1]: expected float, found str \"b\"");
  EXPECT_THAT(
      adam.Error(Without(adam.state, {"param_groups", 0, "eps"})),
      HasSubstr("[\"param_groups\"][0]: torch::optim::Adam: [\"eps\"]: no such key; the dict has \"lr\", \"betas\""));
}

TEST(OptimizerErrors, NumbersMayBeIntsOrTensorsAsInPython) {
  SteppedAdam adam(AdamOptions(0.1));
  const Value with_int = With(adam.state, {"param_groups", 0, "lr"}, 7);
  const Value with_tensor = With(with_int, {"param_groups", 0, "eps"}, at::full({}, 0.25));
  ASSERT_EQ(LoadOptimizerStateDict(adam.optimizer, with_tensor), absl::OkStatus());
  const Value now = *OptimizerStateDict(adam.optimizer);
  EXPECT_EQ(*GetDouble(now, {"param_groups", 0, "lr"}), 7);
  EXPECT_EQ(*GetDouble(now, {"param_groups", 0, "eps"}), 0.25);
}

TEST(OptimizerErrors, WhatCppDoesNotHaveIsUnimplemented) {
  const auto expect = [](auto& stepped, const char* key, const char* name) {
    EXPECT_EQ(stepped.Error(With(stepped.state, {"param_groups", 0, key}, true), absl::StatusCode::kUnimplemented),
              absl::StrCat("[\"param_groups\"][0]: ", name, ": [\"", key, "\"]: True, which ", name, " does not have"));
  };
  SteppedSgd sgd(SGDOptions(0.1).momentum(0.9));
  SteppedAdam adam(AdamOptions(0.1));
  Stepped<RMSprop, RMSpropOptions> rmsprop(RMSpropOptions(0.1));
  expect(sgd, "maximize", "torch::optim::SGD");
  expect(sgd, "differentiable", "torch::optim::SGD");
  expect(rmsprop, "maximize", "torch::optim::RMSprop");
  expect(adam, "maximize", "torch::optim::Adam");
  expect(adam, "decoupled_weight_decay", "torch::optim::Adam");
  SteppedLbfgs lbfgs(LBFGSOptions(0.3));
  expect(lbfgs, "maximize", "torch::optim::LBFGS");
}

TEST(OptimizerErrors, HowPythonComputesTheUpdateDoesNotMatter) {
  SteppedAdam adam(AdamOptions(0.1));
  for (const char* key : {"foreach", "fused", "capturable"}) {
    EXPECT_EQ(LoadOptimizerStateDict(adam.optimizer, With(adam.state, {"param_groups", 0, key}, true)),
              absl::OkStatus());
  }
}

TEST(OptimizerErrors, KeysDecideWhichOptimizersStateFits) {
  SteppedSgd sgd(SGDOptions(0.1).momentum(0.9));
  SteppedAdam adam(AdamOptions(0.1));
  Stepped<AdamW, torch::optim::AdamWOptions> adamw(torch::optim::AdamWOptions(0.1));
  EXPECT_THAT(adam.Error(sgd.state), HasSubstr("torch::optim::Adam: [\"betas\"]: no such key"));
  EXPECT_THAT(sgd.Error(adam.state), HasSubstr("torch::optim::SGD: [\"momentum\"]: no such key"));
  Stepped<optim::AdamW, optim::AdamWOptions> ours(optim::AdamWOptions(0.1));
  EXPECT_THAT(ours.Error(sgd.state), HasSubstr("[\"param_groups\"][0]: AdamW: [\"betas\"]: no such key; the dict has "
                                               "\"lr\", \"momentum\", \"dampening\""));
  EXPECT_THAT(adam.Error(adamw.state, absl::StatusCode::kUnimplemented), HasSubstr("decoupled_weight_decay"));
  EXPECT_EQ(LoadOptimizerStateDict(adamw.optimizer, adam.state), absl::OkStatus());
  EXPECT_EQ(
      LoadOptimizerStateDict(adamw.optimizer, Without(adamw.state, {"param_groups", 0, "decoupled_weight_decay"})),
      absl::OkStatus())
      << "of before 2.7";
}

TEST(OptimizerErrors, StatesThatDoNotFit) {
  SteppedSgd sgd(SGDOptions(0.1).momentum(0.9));
  EXPECT_EQ(sgd.Error(With(sgd.state, {"state", 1, "momentum_buffer"}, at::ones({5}))),
            "[\"param_groups\"][0]: [\"state\"][1]: [\"momentum_buffer\"]: expected shape [2, 2], found [5]");
  EXPECT_EQ(sgd.Error(With(sgd.state, {"state", 1}, 3)),
            "[\"param_groups\"][0]: [\"state\"][1]: expected dict, found int");
  SteppedAdam adam(AdamOptions(0.1));
  EXPECT_EQ(adam.Error(With(adam.state, {"state", 0, "exp_avg"}, 3)),
            "[\"param_groups\"][0]: [\"state\"][0]: [\"exp_avg\"]: expected Tensor, found int");
  EXPECT_THAT(adam.Error(Without(adam.state, {"state", 1, "exp_avg_sq"})),
              HasSubstr("[\"state\"][1]: [\"exp_avg_sq\"]: no such key"));
  for (const double step : {-1.0, 0.5, 1e300}) {
    EXPECT_THAT(adam.Error(With(adam.state, {"state", 0, "step"}, at::scalar_tensor(step, at::kDouble))),
                HasSubstr("[\"state\"][0]: [\"step\"]: expected a count of steps, found "));
  }
}

TEST(OptimizerErrors, WhatTheOptionsNeedMustBeThere) {
  SteppedAdam adam(AdamOptions(0.1));
  EXPECT_THAT(adam.Error(With(adam.state, {"param_groups", 0, "amsgrad"}, true)),
              HasSubstr("[\"state\"][0]: [\"max_exp_avg_sq\"]: no such key"));
  Stepped<RMSprop, RMSpropOptions> rmsprop(RMSpropOptions(0.1));
  EXPECT_THAT(rmsprop.Error(With(rmsprop.state, {"param_groups", 0, "momentum"}, 0.9)),
              HasSubstr("[\"momentum_buffer\"]: no such key"));
  EXPECT_THAT(rmsprop.Error(With(rmsprop.state, {"param_groups", 0, "centered"}, true)),
              HasSubstr("[\"grad_avg\"]: no such key"));
  Stepped<Adagrad, torch::optim::AdagradOptions> adagrad(torch::optim::AdagradOptions(0.1));
  EXPECT_EQ(adagrad.Error(Without(adagrad.state, {"state", 1})),
            "[\"param_groups\"][0]: [\"state\"][1]: no state, which a torch::optim::Adagrad needs");
}

TEST(OptimizerErrors, EmptyStatesAreNone) {
  SteppedSgd sgd(SGDOptions(0.1).momentum(0.9));
  const Value without = With(sgd.state, {"state", 0}, Value::Dict());
  ASSERT_EQ(LoadOptimizerStateDict(sgd.optimizer, With(without, {"state", 1, "momentum_buffer"}, Value())),
            absl::OkStatus());
  EXPECT_EQ(OptimizerStateDict(sgd.optimizer)->Find("state")->size(), 0);
}

TEST(OptimizerErrors, AnLbfgsHistoryThatDoesNotFit) {
  SteppedLbfgs lbfgs(LBFGSOptions(0.3).max_iter(2).history_size(3));
  EXPECT_EQ(lbfgs.Error(With(lbfgs.state, {"state", 0, "d"}, at::ones({5}))),
            "[\"param_groups\"][0]: [\"state\"][0]: [\"d\"]: expected shape [7], found [5]");
  EXPECT_EQ(lbfgs.Error(With(lbfgs.state, {"state", 0, "al"}, Value::List())),
            "[\"param_groups\"][0]: [\"state\"][0]: [\"al\"]: expected history_size, 3, items, found 0");
  EXPECT_THAT(lbfgs.Error(With(lbfgs.state, {"state", 0, "ro"}, Value::List())),
              HasSubstr("expected as many old_dirs, old_stps and ro, at most history_size, 3, found 1, 1 and 0"));
  EXPECT_THAT(lbfgs.Error(With(lbfgs.state, {"state", 0, "old_stps"}, Value::List({Value()}))),
              HasSubstr("[\"old_stps\"]: [0]: expected Tensor, found None"));
  EXPECT_THAT(lbfgs.Error(With(lbfgs.state, {"param_groups", 0, "line_search_fn"}, "weak")),
              HasSubstr("[\"line_search_fn\"]: expected None or \"strong_wolfe\", found str"));
}

}  // namespace
}  // namespace lockstep::checkpoint
