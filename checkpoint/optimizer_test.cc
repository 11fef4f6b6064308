#include "lockstep/checkpoint/optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGD;
using torch::optim::SGDOptions;

// Two groups of parameters under SGD with momentum.
struct Training {
  Training()
      : parameters{at::full({3}, 0.3).set_requires_grad(true), at::full({2, 2}, -0.7).set_requires_grad(true),
                   at::full({1}, 0.1).set_requires_grad(true)},
        sgd({OptimizerParamGroup({parameters[0], parameters[1]}),
             OptimizerParamGroup({parameters[2]}, std::make_unique<SGDOptions>(SGDOptions(0.01).momentum(0.5)))},
            SGDOptions(0.1).momentum(0.9).weight_decay(1e-4).nesterov(true)) {}

  void Steps(int count) {
    for (int i = 0; i < count; ++i) {
      for (at::Tensor& parameter : parameters) parameter.mutable_grad() = parameter.detach().sin();
      sgd.step();
    }
  }

  Value Parameters() const {
    return Value::List(
        {parameters[0].clone().detach(), parameters[1].clone().detach(), parameters[2].clone().detach()});
  }

  void CopyFrom(const Training& other) {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(other.parameters[i]);
  }

  std::vector<at::Tensor> parameters;
  SGD sgd;
};

Value ThroughAFile(const Value& value) {
  const std::string path = testing::TempDir() + "/optimizer.pt";
  EXPECT_TRUE(Save(path, value).ok());
  return *Load(path);
}

TEST(Optimizer, HasPythonsForm) {
  Training training;
  training.Steps(1);
  const Value value = *OptimizerStateDict(training.sgd);
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

TEST(Optimizer, ContinuesToTheBit) {
  Training whole, first, second;
  whole.Steps(6);
  first.Steps(3);
  second.Steps(1);  // state that must be replaced
  const Value state = ThroughAFile(*OptimizerStateDict(first.sgd));
  second.CopyFrom(first);
  static_cast<SGDOptions&>(second.sgd.param_groups()[0].options()).lr(5).momentum(0.1);
  ASSERT_TRUE(LoadOptimizerStateDict(second.sgd, state).ok());
  second.Steps(3);
  EXPECT_TRUE(Identical(second.Parameters(), whole.Parameters()));
  EXPECT_TRUE(Identical(*OptimizerStateDict(second.sgd), *OptimizerStateDict(whole.sgd)));
}

TEST(Optimizer, WhatWasLoadedIsNotShared) {
  Training from, to;
  from.Steps(2);
  const Value state = *OptimizerStateDict(from.sgd);
  ASSERT_TRUE(LoadOptimizerStateDict(to.sgd, state).ok());
  EXPECT_FALSE(GetTensor(*OptimizerStateDict(to.sgd), {"state", 0, "momentum_buffer"})
                   ->is_alias_of(*GetTensor(state, {"state", 0, "momentum_buffer"})));
}

TEST(Optimizer, AFreshOneHasNoStateAndLoadingItForgets) {
  Training fresh, trained;
  trained.Steps(2);
  const Value state = ThroughAFile(*OptimizerStateDict(fresh.sgd));
  EXPECT_EQ(state.Find("state")->size(), 0);
  ASSERT_TRUE(LoadOptimizerStateDict(trained.sgd, state).ok());
  EXPECT_EQ(OptimizerStateDict(trained.sgd)->Find("state")->size(), 0);
}

TEST(Optimizer, ErrorsNameTheKeyAndChangeNothing) {
  Training training, small;
  training.Steps(1);
  const Value before = ThroughAFile(*OptimizerStateDict(training.sgd));
  const auto error = [&](const Value& value) {
    return std::string(LoadOptimizerStateDict(training.sgd, value).message());
  };
  SGD other({at::ones({3}).set_requires_grad(true)}, SGDOptions(0.1));
  EXPECT_EQ(error(*OptimizerStateDict(other)), "[\"param_groups\"]: 1 groups, the optimizer has 2");
  EXPECT_THAT(error(3), HasSubstr("found int 3"));

  const auto with_group = [&](const char* key, const Value& changed) {
    Value group = before.Find("param_groups")->items()[0];
    group.Set(key, changed);
    Value value = before;
    value.Set("param_groups", Value::List({group, before.Find("param_groups")->items()[1]}));
    return value;
  };
  EXPECT_EQ(error(with_group("lr", "fast")), "[\"param_groups\"][0]: [\"lr\"]: expected float, found str \"fast\"");
  EXPECT_EQ(error(with_group("maximize", true)),
            "[\"param_groups\"][0]: [\"maximize\"]: True, which torch::optim::SGD does not have");
  EXPECT_EQ(error(with_group("params", Value::List({0}))),
            "[\"param_groups\"][0]: [\"params\"]: 1 parameters, the optimizer has 2");
  EXPECT_EQ(error(with_group("lr", 7)), "") << "an int is a fine learning rate";
  ASSERT_TRUE(LoadOptimizerStateDict(training.sgd, before).ok());

  Value states = *before.Find("state");
  states.Set(1, Value::Dict({{"momentum_buffer", at::ones({5})}}));
  Value value = before;
  value.Set("state", states);
  EXPECT_EQ(error(value),
            "[\"param_groups\"][0]: [\"state\"][1]: [\"momentum_buffer\"]: its shape is [5], the parameter's [2, 2]");
  EXPECT_TRUE(Identical(*OptimizerStateDict(training.sgd), before));
}

TEST(Optimizer, OthersAreUnimplementedByName) {
  torch::optim::Adam adam({at::ones({1})}, torch::optim::AdamOptions());
  EXPECT_EQ(OptimizerStateDict(adam).status(),
            absl::UnimplementedError("the state of a torch::optim::Adam is not supported; only torch::optim::SGD's"));
  EXPECT_EQ(LoadOptimizerStateDict(adam, Value()).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lockstep::checkpoint
