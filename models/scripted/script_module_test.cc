#include "lockstep/models/scripted/script_module.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/scripted/testing/modules.h"

namespace lockstep::models::scripted {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const torch::OrderedDict<std::string, at::Tensor>& tensors) { return tensors.keys(); }

TEST(ScriptModule, HasTheNamesAndTheOrderOfPython) {
  ScriptModule net(testing::Mlp());
  EXPECT_THAT(Names(net->named_parameters()),
              ElementsAre("first.weight", "first.bias", "norm.weight", "norm.bias", "last.weight", "last.bias"));
  EXPECT_THAT(Names(net->named_buffers()),
              ElementsAre("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  EXPECT_EQ(net->name(), "Mlp");
  EXPECT_EQ(net->named_children()["first"]->name(), "Linear");
}

TEST(ScriptModule, SharesItsTensorsWithTheTorchScriptModule) {
  const torch::jit::Module module = testing::Mlp();
  ScriptModule net(module);
  net->to(at::kFloat);
  for (const auto& parameter : module.named_parameters()) {
    EXPECT_EQ(parameter.value.scalar_type(), at::kFloat) << parameter.name;
    EXPECT_TRUE(net->named_parameters()[parameter.name].is_same(parameter.value));
    EXPECT_TRUE(parameter.value.requires_grad());
  }
}

TEST(ScriptModule, TheModeIsThatOfTheTorchScriptModule) {
  torch::jit::Module module = testing::Mlp();
  ScriptModule net(module);
  EXPECT_TRUE(net->is_training());
  net->eval();
  EXPECT_FALSE(module.is_training());
  EXPECT_FALSE(module.attr("norm").toModule().is_training());
  module.train();
  EXPECT_TRUE(net->is_training());
  EXPECT_TRUE(net->named_children()["norm"]->is_training());
}

TEST(ScriptModule, AFrozenParameterStaysFrozen) {
  torch::jit::Module module = testing::Mlp();
  module.attr("first").toModule().attr("weight").toTensor().set_requires_grad(false);
  ScriptModule net(module);
  EXPECT_FALSE(net->named_parameters()["first.weight"].requires_grad());
  EXPECT_TRUE(net->named_parameters()["first.bias"].requires_grad());
}

TEST(ScriptModule, ForwardConvertsItsArguments) {
  ScriptModule net(testing::Branches());
  const at::Tensor x = testing::Batch(2, 1);
  EXPECT_EQ(net(x).toGenericDict().at("parts").toTensorVector().size(), 2);  // use_b has a default
  EXPECT_EQ(net(x, false).toGenericDict().at("parts").toTensorVector().size(), 1);
}

TEST(ScriptModule, RunsAnotherMethod) {
  ScriptModule hidden(testing::Mlp(), ScriptOptions{"hidden"});
  const at::Tensor x = testing::Batch(2, 1);
  EXPECT_EQ(hidden(x).toTensor().size(1), 5);
  EXPECT_TRUE(at::equal(hidden->Call("forward", {x}).toTensor(), ScriptModule(testing::Mlp())(x).toTensor()));
}

TEST(ScriptModule, AnUnknownMethodIsAnErrorThatListsTheMethods) {
  ScriptModule net(testing::Mlp());
  const absl::Status status = TorchStatus("", [&] { net->Call("backward", {}); });
  EXPECT_EQ(status,
            absl::NotFoundError("the scripted module Mlp has no method \"backward\"; its methods: forward, hidden"));
}

TEST(ScriptModule, AWrongArgumentIsAnErrorOfLibTorch) {
  ScriptModule net(testing::Mlp());
  EXPECT_THAT(TorchStatus("", [&] { net(); }).message(), HasSubstr("forward() is missing value for argument 'x'"));
}

TEST(ScriptModule, ACloneIsASeparateModule) {
  const torch::jit::Module module = testing::Mlp();
  ScriptModule net(module);
  net->named_parameters()["last.bias"].set_requires_grad(false);
  net->eval();
  const auto copy = std::dynamic_pointer_cast<ScriptModuleImpl>(net->clone());
  ASSERT_TRUE(copy);
  EXPECT_FALSE(copy->is_training());
  for (const auto& parameter : net->named_parameters()) {
    const at::Tensor copied = copy->named_parameters()[parameter.key()];
    EXPECT_TRUE(at::equal(copied, parameter.value()));
    EXPECT_FALSE(copied.is_alias_of(parameter.value()));
    EXPECT_TRUE(copied.is_leaf());
    EXPECT_EQ(copied.requires_grad(), parameter.value().requires_grad()) << parameter.key();
  }
  copy->train();
  copy->forward(testing::Batch(3, 1));
  EXPECT_FALSE(net->is_training());
  EXPECT_EQ(net->named_buffers()["norm.num_batches_tracked"].item<int64_t>(), 0);
  EXPECT_EQ(copy->named_buffers()["norm.num_batches_tracked"].item<int64_t>(), 1);
}

TEST(ScriptModule, TiedParametersAndSharedSubmodulesStayTied) {
  torch::jit::Module module("Tied");
  const torch::jit::Module part = testing::Averaging();
  module.register_module("one", part);
  module.register_module("other", part);
  module.register_parameter("weight", part.attr("weight").toTensor(), /*is_buffer=*/false);
  ScriptModule net(module);
  EXPECT_THAT(Names(net->named_parameters()), ElementsAre("weight", "one.weight", "other.weight"));
  const auto copy = net->clone();
  for (const torch::nn::Module* one :
       {static_cast<const torch::nn::Module*>(net.get()), static_cast<const torch::nn::Module*>(copy.get())}) {
    EXPECT_TRUE(one->named_parameters()["weight"].is_same(one->named_parameters()["other.weight"]));
    EXPECT_EQ(one->named_children()["one"], one->named_children()["other"]);
  }
}

// The gradient of x's part of Branches, which LibTorch's optimizer computes with other rounding.
at::Tensor GradientOfA(ScriptModule& net, const at::Tensor& x) {
  net->zero_grad();
  net(x, false).toGenericDict().at("sum").toTensorVector()[0].square().sum().backward();
  return net->named_parameters()["a"].grad().clone();
}

TEST(ScriptModule, WithoutOptimizationEveryCallHasTheBitsOfPlainAutograd) {
  ScriptModule net(testing::Branches(), ScriptOptions{"forward", /*optimize=*/false}), optimized(testing::Branches());
  const at::Tensor x = testing::Batch(64, 1);
  const at::Tensor a = net->named_parameters()["a"].detach().clone().requires_grad_();
  at::tanh(x * a).square().sum().backward();
  for (int call = 0; call < 4; ++call) EXPECT_TRUE(at::equal(GradientOfA(net, x), a.grad())) << call;
  EXPECT_TRUE(at::equal(GradientOfA(optimized, x), a.grad()));
  EXPECT_FALSE(at::equal(GradientOfA(optimized, x), a.grad()));
}

// ---- A method that assigns to a buffer.

TEST(ScriptModule, AnAssignedBufferStaysTheSameTensor) {
  const torch::jit::Module module = testing::Averaging();
  ScriptModule net(module);
  const at::Tensor mean = net->named_buffers()["mean"];
  const at::Tensor x = testing::Batch(2, 1);
  net(x);
  EXPECT_EQ(mean.item<double>(), ((1 + x.mean()) / 2).item<double>());
  EXPECT_TRUE(module.attr("mean").toTensor().is_same(mean));
  mean.fill_(3);  // as a broadcast does
  EXPECT_TRUE(at::equal(net(x).toTensor(), x * net->named_parameters()["weight"] * 3));
}

TEST(ScriptModule, AGraphKeepsTheBuffersEarlierValue) {
  ScriptModule net(testing::Averaging());
  const at::Tensor x = testing::Batch(2, 1);
  const at::Tensor before = net->named_buffers()["mean"].clone();
  const at::Tensor first = net(x).toTensor(), second = net(x).toTensor();
  net->named_buffers()["mean"].fill_(100);  // the next broadcast
  first.sum().backward();
  EXPECT_TRUE(at::allclose(net->named_parameters()["weight"].grad(), (x * before).sum(0)));
}

TEST(ScriptModule, AnAssignmentInInferenceModeReachesTheBuffer) {
  ScriptModule net(testing::Averaging());
  const at::Tensor x = testing::Batch(2, 1);
  {
    const c10::InferenceMode inference;
    net(x);
  }
  EXPECT_EQ(net->named_buffers()["mean"].item<double>(), ((1 + x.mean()) / 2).item<double>());
  net(x).toTensor().sum().backward();
}

TEST(ScriptModule, AnAssignedParameterIsAnError) {
  ScriptModule net(testing::Averaging());
  const at::Tensor weight = net->named_parameters()["weight"].detach().clone();
  const absl::Status status = TorchStatus("", [&] { net->Call("spoil", {testing::Batch(2, 1)}); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "the scripted module Averaging assigned a tensor to its parameter weight: change it in place");
  EXPECT_TRUE(at::equal(net->jit().attr("weight").toTensor(), weight));
}

}  // namespace
}  // namespace lockstep::models::scripted
