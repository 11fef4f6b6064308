// Parameters that are trained although the wrapper does not know them.

#include "lockstep/ddp/internal/module_changes.h"

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp::internal {
namespace {

using testing::Batch;
using testing::OnRanks;
using testing::Thrown;
using testing::Wrapped;

constexpr char kRemedy[] =
    ", so its gradient would not be averaged: wrap the module again, or name it in parameters_to_ignore";

// Two layers in a list, the first one frozen.
struct GrowingImpl : torch::nn::Module {
  GrowingImpl() : layers(register_module("layers", torch::nn::ModuleList())) {
    for (int i = 0; i < 2; ++i) layers->push_back(torch::nn::Linear(3, 3));
    for (torch::Tensor& parameter : layers[0]->parameters()) parameter.set_requires_grad(false);
    to(torch::kDouble);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) x = layer->as<torch::nn::Linear>()->forward(x);
    return x;
  }
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Growing);

// Expects that `change`, between two steps on two ranks, makes the next forward throw `expected`.
void ExpectThrows(const std::function<void(Growing& net)>& change, const std::string& expected) {
  OnRanks(2, [&](comm::ProcessGroup& group) {
    Growing net;
    auto ddp = Wrapped(net, group);
    ddp(Batch(4, 3, 0)).sum().backward();
    change(net);
    const std::string message = absl::StrCat("rank ", group.rank(), ": parameter ", expected, kRemedy);
    for (int i = 0; i < 2; ++i) {
      const absl::Status thrown = Thrown([&] { ddp(Batch(4, 3, 1)); });
      EXPECT_EQ(thrown.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(thrown.message(), message);
    }
    auto again = Wrapped(net, group);
    again(Batch(4, 3, 1)).sum().backward();
  });
}

TEST(ModuleChanges, AParameterThatIsNoLongerFrozenIsNamed) {
  ExpectThrows([](Growing& net) { net->layers[0]->as<torch::nn::Linear>()->bias.set_requires_grad(true); },
               "layers.0.bias requires gradients, which it did not when ddp::Wrap was called");
}

TEST(ModuleChanges, ALayerRegisteredLaterIsNamed) {
  ExpectThrows(
      [](Growing& net) {
        net->layers->push_back(torch::nn::Linear(torch::nn::LinearOptions(3, 3).bias(false))), net->to(torch::kDouble);
      },
      "layers.2.weight was registered after ddp::Wrap");
}

TEST(ModuleChanges, AParameterRegisteredLaterIsNamed) {
  ExpectThrows([](Growing& net) { net->layers[1]->register_parameter("scale", torch::ones({3}, torch::kDouble)); },
               "layers.1.scale was registered after ddp::Wrap");
}

TEST(ModuleChanges, ALayerThatReplacesOneIsNamed) {
  ExpectThrows(
      [](Growing& net) {
        net->replace_module("layers", torch::nn::ModuleList(torch::nn::Linear(3, 3)));
        net->layers = std::dynamic_pointer_cast<torch::nn::ModuleListImpl>(net->children()[0]);
        net->to(torch::kDouble);
      },
      "layers.0.weight was registered after ddp::Wrap");
}

TEST(ModuleChanges, AnotherModuleInTheHandleIsNamed) {
  OnRanks(2, [](comm::ProcessGroup& group) {
    auto ddp = Wrapped(Growing(), group);
    ddp.module() = Growing();
    EXPECT_EQ(
        Thrown([&] { ddp(Batch(4, 3, 0)); }).message(),
        absl::StrCat("rank ", group.rank(), ": parameter layers.1.weight was registered after ddp::Wrap", kRemedy));
  });
}

TEST(ModuleChanges, FrozenAndIgnoredParametersMayComeAndGo) {
  OnRanks(2, [](comm::ProcessGroup& group) {
    Growing net;
    Options options;
    options.parameters_to_ignore = {"layers.0.weight"};
    auto ddp = Wrapped(net, group, options);
    net->layers[0]->as<torch::nn::Linear>()->weight.set_requires_grad(true);
    ddp(Batch(4, 3, 0)).sum().backward();
    net->layers->push_back(torch::nn::Linear(3, 3));
    net->to(torch::kDouble);
    for (torch::Tensor& parameter : net->layers[2]->parameters()) parameter.set_requires_grad(false);
    ddp(Batch(4, 3, 1)).sum().backward();
    net->layers[2]->as<torch::nn::Linear>()->bias.set_requires_grad(true);
    EXPECT_EQ(Thrown([&] { ddp(Batch(4, 3, 0)); }).message(),
              absl::StrCat("rank ", group.rank(),
                           ": parameter layers.2.bias requires gradients, which it did not when ddp::Wrap was called",
                           kRemedy));
  });
}

TEST(ModuleChanges, EvaluationDoesNotLook) {
  OnRanks(2, [](comm::ProcessGroup& group) {
    Growing net;
    auto ddp = Wrapped(net, group);
    net->layers[0]->as<torch::nn::Linear>()->bias.set_requires_grad(true);
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(ddp(Batch(4, 3, 0)).size(0), 4);
  });
}

}  // namespace
}  // namespace lockstep::ddp::internal
