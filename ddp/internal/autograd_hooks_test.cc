#include "lockstep/ddp/internal/autograd_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::ddp::internal {
namespace {

struct Counter : torch::autograd::FunctionPostHook {
  Counter(std::map<int, int>* counts, int index) : counts(counts), index(index) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ++(*counts)[index];
    return outputs;
  }
  std::map<int, int>* const counts;
  const int index;
};

struct Hooked {
  explicit Hooked(int count) {
    for (int i = 0; i < count; ++i) parameters.push_back(torch::ones({2}).requires_grad_());
  }
  std::unique_ptr<AccumulatorHooks> Hooks() {
    return std::make_unique<AccumulatorHooks>(parameters,
                                              [this](int i) { return std::make_unique<Counter>(&counts, i); });
  }
  std::vector<torch::Tensor> parameters;
  std::map<int, int> counts;
};

using Counts = std::map<int, int>;

TEST(AccumulatorHooks, RunOncePerBackwardAndParameterUntilTheyAreDestroyed) {
  Hooked hooked(3);
  auto hooks = hooked.Hooks();
  for (int i = 0; i < 2; ++i) (hooked.parameters[0] * hooked.parameters[2] + hooked.parameters[2]).sum().backward();
  EXPECT_EQ(hooked.counts, (Counts{{0, 2}, {2, 2}}));
  hooks.reset();
  hooked.parameters[0].sum().backward();
  EXPECT_EQ(hooked.counts, (Counts{{0, 2}, {2, 2}}));
}

TEST(AccumulatorHooks, FindAParameterWhoseAccumulatorWasReplaced) {
  Hooked hooked(2);
  const auto hooks = hooked.Hooks();
  EXPECT_EQ(hooks->Replaced(), -1);
  hooked.parameters[1].set_data(torch::ones({2}, torch::kDouble));
  EXPECT_EQ(hooks->Replaced(), 1);
}

TEST(AccumulatorHooks, FollowParametersThatChangeTheirData) {
  Hooked hooked(2);
  const auto hooks = hooked.Hooks();
  hooked.parameters[1].set_data(torch::ones({2}, torch::kDouble));
  hooks->Reinstall();
  hooked.parameters[1].sum().backward();
  EXPECT_EQ(hooked.counts, (Counts{{1, 1}}));
  hooked.parameters[1].set_data(torch::ones({2}));
  EXPECT_EQ(hooks->Replaced(), -1);
}

TEST(AccumulatorHooks, KnowTheParametersThatABackwardWillNotReach) {
  Hooked hooked(4);
  const auto hooks = hooked.Hooks();
  std::vector<int> unreached;
  const torch::Tensor output = hooked.parameters[0] + hooked.parameters[2], other = hooked.parameters[3] * 2;
  CallInBackwardThrough(output, [&] { unreached = hooks->NotInBackward(); });
  CallInBackwardThrough(other, [&] { unreached.push_back(99); });
  output.sum().backward();
  EXPECT_EQ(unreached, (std::vector<int>{1, 3}));
}

TEST(CallAtEndOfBackward, CallsWhenAllGradientsAreThere) {
  const torch::Tensor x = torch::ones({2}).requires_grad_();
  bool had_gradient = false;
  const torch::Tensor output = x * 3;
  CallInBackwardThrough(output, [&] { CallAtEndOfBackward([&] { had_gradient = x.grad().defined(); }); });
  output.sum().backward();
  EXPECT_TRUE(had_gradient);
}

TEST(CallInBackwardThrough, CallsOncePerBackwardAndLeavesGradientsAsTheyAre) {
  const torch::Tensor x = torch::ones({2}).requires_grad_();
  const torch::Tensor output = x * 3;
  int calls = 0;
  CallInBackwardThrough(output, [&] { ++calls; });
  CallInBackwardThrough(torch::ones({2}), [&] { calls = 99; });
  CallInBackwardThrough(torch::Tensor(), [&] { calls = 99; });
  output.sum().backward({}, /*retain_graph=*/true);
  EXPECT_EQ(calls, 1);
  (output.sum() + output.prod()).backward();
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(x.grad().equal(torch::full({2}, 15.0f)));
}

TEST(AccumulatorHooks, KnowWhetherABackwardAccumulates) {
  Hooked hooked(2);
  const auto hooks = hooked.Hooks();
  const torch::Tensor x = torch::ones({2}).requires_grad_();
  const torch::Tensor output = x * hooked.parameters[0];
  std::vector<bool> accumulated;
  CallInBackwardThrough(output, [&] { accumulated.push_back(hooks->AccumulatedInBackward()); });
  output.sum().backward({}, /*retain_graph=*/true);
  output.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/false, torch::TensorList({x}));
  output.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/false,
                        torch::TensorList({x, hooked.parameters[0]}));
  torch::autograd::grad({output.sum()}, {x, hooked.parameters[0]});
  EXPECT_EQ(accumulated, (std::vector<bool>{true, false, true, false}));
}

}  // namespace
}  // namespace lockstep::ddp::internal
