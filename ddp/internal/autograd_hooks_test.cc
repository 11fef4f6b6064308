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
  const auto outputs = PassThroughSink({hooked.parameters[0] + hooked.parameters[2], hooked.parameters[3] * 2},
                                       [&] { unreached = hooks->NotInBackward(); });
  outputs[0].sum().backward();
  EXPECT_EQ(unreached, (std::vector<int>{1, 3}));
}

TEST(CallAtEndOfBackward, CallsWhenAllGradientsAreThere) {
  const torch::Tensor x = torch::ones({2}).requires_grad_();
  bool had_gradient = false;
  const torch::Tensor loss =
      PassThroughSink({x * 3}, [&] { CallAtEndOfBackward([&] { had_gradient = x.grad().defined(); }); })[0].sum();
  loss.backward();
  EXPECT_TRUE(had_gradient);
}

TEST(PassThroughSink, KeepsTensorsAndGradientsAsTheyAre) {
  const torch::Tensor x = torch::ones({2}).requires_grad_();
  const torch::Tensor constant = torch::ones({2});
  int calls = 0;
  const auto passed = PassThroughSink({x * 3, constant, torch::Tensor()}, [&] { ++calls; });
  EXPECT_TRUE(passed[0].equal(x * 3));
  EXPECT_TRUE(passed[1].is_same(constant));
  EXPECT_FALSE(passed[2].defined());
  passed[0].sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(x.grad().equal(torch::full({2}, 3.0f)));
}

}  // namespace
}  // namespace lockstep::ddp::internal
