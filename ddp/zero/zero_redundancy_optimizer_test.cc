#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::ddp::zero {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;
using torch::optim::OptimizerParamGroup;

std::vector<at::Tensor> Parameters() {
  std::vector<at::Tensor> parameters;
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{7, 5}, {7}, {4, 3, 2}, {}, {40}, {6, 6}}) {
    const auto dtype = shape.size() == 3 ? at::kDouble : at::kFloat;
    parameters.push_back(at::randn(shape, at::detail::createCPUGenerator(parameters.size()), dtype).requires_grad_());
  }
  const at::Tensor transposed = at::randn({3, 8}, at::detail::createCPUGenerator(99)).t();
  parameters.push_back(transposed.requires_grad_());
  return parameters;
}

// Sets the gradients of a step, the same on every rank; the parameter of shape [7] never gets one.
void SetGradients(const std::vector<at::Tensor>& parameters, int step) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i == 1) continue;
    const auto random = at::detail::createCPUGenerator(100 * step + i);
    const_cast<at::Tensor&>(parameters[i]).mutable_grad() =
        at::randn(parameters[i].sizes(), random, parameters[i].scalar_type());
  }
}

template <typename Base>
struct Settings;
template <>
struct Settings<torch::optim::SGD> {
  using Options = torch::optim::SGDOptions;
  static Options Defaults() { return Options(0.1).momentum(0.9).weight_decay(0.01); }
};
template <>
struct Settings<torch::optim::Adam> {
  using Options = torch::optim::AdamOptions;
  static Options Defaults() { return Options(0.01).amsgrad(true); }
};
template <>
struct Settings<torch::optim::AdamW> {
  using Options = torch::optim::AdamWOptions;
  static Options Defaults() { return Options(0.01).weight_decay(0.1); }
};
template <>
struct Settings<optim::AdamW> {
  using Options = optim::AdamWOptions;
  static Options Defaults() { return Options(0.01).amsgrad(true); }
};
template <>
struct Settings<torch::optim::RMSprop> {
  using Options = torch::optim::RMSpropOptions;
  static Options Defaults() { return Options(0.01).momentum(0.5).centered(true); }
};
template <>
struct Settings<torch::optim::Adagrad> {
  using Options = torch::optim::AdagradOptions;
  static Options Defaults() { return Options(0.05).lr_decay(0.01); }
};

// Two groups; the second with a learning rate of its own.
template <typename Base>
std::vector<OptimizerParamGroup> Groups(const std::vector<at::Tensor>& parameters) {
  auto options = Settings<Base>::Defaults();
  options.lr(0.003);
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin(), parameters.begin() + 4));
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin() + 4, parameters.end()),
                      std::make_unique<typename Settings<Base>::Options>(options));
  return groups;
}

template <typename Base>
std::unique_ptr<ZeroRedundancyOptimizer<Base>> MakeZero(const std::vector<at::Tensor>& parameters, ProcessGroup& group,
                                                        const ZeroOptions& options = {}) {
  auto zero =
      ZeroRedundancyOptimizer<Base>::Create(Groups<Base>(parameters), Settings<Base>::Defaults(), &group, options);
  ThrowIfError(zero.status());
  return *std::move(zero);
}

void TrainSteps(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int first, int last) {
  for (int step = first; step < last; ++step) {
    optimizer.zero_grad();
    SetGradients(parameters, step);
    optimizer.step();
  }
}

template <typename Base>
std::vector<at::Tensor> PlainlyTrained(int steps) {
  const std::vector<at::Tensor> parameters = Parameters();
  Base plain(Groups<Base>(parameters), Settings<Base>::Defaults());
  TrainSteps(plain, parameters, 0, steps);
  return parameters;
}

void ExpectSameBits(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << "parameter " << i;
}

void OnRanks(int ranks, const std::function<void(ProcessGroup& group)>& body) {
  EXPECT_EQ(RunRanksOk(ranks, body), absl::OkStatus());
}

template <typename Base>
class ZeroOver : public ::testing::Test {};
using Bases = ::testing::Types<torch::optim::SGD, torch::optim::Adam, torch::optim::AdamW, optim::AdamW,
                               torch::optim::RMSprop, torch::optim::Adagrad>;
TYPED_TEST_SUITE(ZeroOver, Bases);

TYPED_TEST(ZeroOver, StepsLikeThePlainOptimizerToTheBit) {
  const std::vector<at::Tensor> expected = PlainlyTrained<TypeParam>(5);
  EXPECT_FALSE(expected[0].equal(Parameters()[0]));
  for (const int ranks : {1, 2, 3, 10}) {
    for (const bool views : {false, true}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, views ", views));
      OnRanks(ranks, [&](ProcessGroup& group) {
        const std::vector<at::Tensor> parameters = Parameters();
        ZeroOptions options;
        options.parameters_as_bucket_view = views;
        const auto zero = MakeZero<TypeParam>(parameters, group, options);
        TrainSteps(*zero, parameters, 0, 5);
        ExpectSameBits(parameters, expected);
      });
    }
  }
}

TYPED_TEST(ZeroOver, GoesOnFromAConsolidatedStateWithAnyNumberOfRanks) {
  const std::vector<at::Tensor> expected = PlainlyTrained<TypeParam>(6);
  std::string saved;
  std::vector<at::Tensor> halfway;
  OnRanks(3, [&](ProcessGroup& group) {
    const std::vector<at::Tensor> parameters = Parameters();
    const auto zero = MakeZero<TypeParam>(parameters, group);
    TrainSteps(*zero, parameters, 0, 3);
    ASSERT_EQ(zero->ConsolidateStateDict(1), absl::OkStatus());
    if (group.rank() == 1) {
      std::ostringstream out;
      torch::save(*zero, out);
      saved = out.str();
      for (const at::Tensor& parameter : parameters) halfway.push_back(parameter.detach().clone());
    }
    TrainSteps(*zero, parameters, 3, 6);  // consolidating changed nothing
    ExpectSameBits(parameters, expected);
  });
  OnRanks(2, [&](ProcessGroup& group) {
    const std::vector<at::Tensor> parameters = Parameters();
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].detach().copy_(halfway[i]);
    const auto zero = MakeZero<TypeParam>(parameters, group);
    std::istringstream in(saved);
    torch::load(*zero, in);
    TrainSteps(*zero, parameters, 3, 6);
    ExpectSameBits(parameters, expected);
  });
}

TEST(ZeroRedundancyOptimizer, UsesTheOptionsThatASchedulerSets) {
  const auto train = [](torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters) {
    torch::optim::StepLR scheduler(optimizer, 2, 0.1);
    for (int step = 0; step < 6; ++step) {
      TrainSteps(optimizer, parameters, step, step + 1);
      scheduler.step();
    }
  };
  const std::vector<at::Tensor> expected = Parameters();
  torch::optim::SGD plain(Groups<torch::optim::SGD>(expected), Settings<torch::optim::SGD>::Defaults());
  train(plain, expected);
  EXPECT_FALSE(expected[0].equal(PlainlyTrained<torch::optim::SGD>(6)[0]));
  OnRanks(2, [&](ProcessGroup& group) {
    const std::vector<at::Tensor> parameters = Parameters();
    train(*MakeZero<torch::optim::SGD>(parameters, group), parameters);
    ExpectSameBits(parameters, expected);
  });
}

TEST(ZeroRedundancyOptimizer, ClearsTheGradientsOfAllParameters) {
  OnRanks(3, [](ProcessGroup& group) {
    const std::vector<at::Tensor> parameters = Parameters();
    const auto zero = MakeZero<torch::optim::SGD>(parameters, group);
    SetGradients(parameters, 0);
    zero->zero_grad();
    for (const at::Tensor& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
  });
}

TEST(ZeroRedundancyOptimizer, CallsTheClosureWithAllParameters) {
  const std::vector<at::Tensor> expected = PlainlyTrained<torch::optim::SGD>(1);
  OnRanks(2, [&](ProcessGroup& group) {
    const std::vector<at::Tensor> parameters = Parameters();
    const auto zero = MakeZero<torch::optim::SGD>(parameters, group);
    SetGradients(parameters, 77);
    const c10::NoGradGuard no_grad;
    const at::Tensor loss = zero->step([&] {
      EXPECT_TRUE(c10::GradMode::is_enabled());
      zero->zero_grad();
      for (const at::Tensor& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
      SetGradients(parameters, 0);
      return at::full({}, 3.0);
    });
    EXPECT_EQ(loss.item<double>(), 3);
    ExpectSameBits(parameters, expected);
  });
}

int64_t BytesOfState(const torch::optim::Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const auto& item : optimizer.state()) {
    const auto& state = static_cast<const torch::optim::AdamParamState&>(*item.second);
    bytes += state.exp_avg().nbytes() + state.exp_avg_sq().nbytes();
  }
  return bytes;
}

TEST(ZeroRedundancyOptimizer, KeepsOneCopyOfTheStateOnAllRanksTogether) {
  constexpr int64_t kParameterBytes = 20 * 64 * 32 * 4;
  std::vector<int64_t> held(4), consolidated(4), after(4);
  OnRanks(4, [&](ProcessGroup& group) {
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 20; ++i) parameters.push_back(at::ones({64, 32}).requires_grad_());
    auto zero = ZeroRedundancyOptimizer<torch::optim::Adam>::Create(parameters, torch::optim::AdamOptions(), &group);
    ASSERT_TRUE(zero.ok()) << zero.status();
    const auto step = [&] {
      for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::ones({64, 32});
      (*zero)->step();
    };
    step();
    held[group.rank()] = BytesOfState(**zero);
    ASSERT_EQ((*zero)->ConsolidateStateDict(2), absl::OkStatus());
    consolidated[group.rank()] = BytesOfState(**zero);
    step();
    after[group.rank()] = BytesOfState(**zero);
  });
  const int64_t quarter = 2 * kParameterBytes / 4;
  EXPECT_THAT(held, ::testing::Each(quarter));
  EXPECT_THAT(consolidated, ::testing::ElementsAre(quarter, quarter, 4 * quarter, quarter));
  EXPECT_EQ(after, held);
}

TEST(ZeroRedundancyOptimizer, AdagradMakesStateForTheOwnShareOnly) {
  std::vector<size_t> states(3);
  OnRanks(3, [&](ProcessGroup& group) {
    states[group.rank()] = MakeZero<torch::optim::Adagrad>(Parameters(), group)->state().size();
  });
  EXPECT_EQ(states[0] + states[1] + states[2], Parameters().size());
  EXPECT_LT(*std::max_element(states.begin(), states.end()), Parameters().size());
}

TEST(ZeroRedundancyOptimizer, WithViewsTheParametersOfARankAndDtypeShareABuffer) {
  OnRanks(2, [](ProcessGroup& group) {
    const std::vector<at::Tensor> parameters = Parameters();
    const auto impl = parameters[0].unsafeGetTensorImpl();
    ZeroOptions options;
    options.parameters_as_bucket_view = true;
    const auto zero = MakeZero<torch::optim::SGD>(parameters, group, options);
    std::set<const void*> storages;
    for (const at::Tensor& parameter : parameters) storages.insert(parameter.storage().unsafeGetStorageImpl());
    EXPECT_EQ(storages.size(), 3);  // float of two ranks, double of one
    EXPECT_EQ(parameters[0].unsafeGetTensorImpl(), impl);
    EXPECT_EQ(parameters.back().strides(), Parameters().back().strides());
    ExpectSameBits(parameters, Parameters());
  });
}

template <typename Base>
void ExpectSavedAndLoadedByCheckpointOptimizer() {
  const std::vector<at::Tensor> expected = PlainlyTrained<Base>(4);
  OnRanks(2, [&](ProcessGroup& group) {
    const std::vector<at::Tensor> parameters = Parameters(), twin = Parameters();
    Base plain(Groups<Base>(twin), Settings<Base>::Defaults());
    TrainSteps(plain, twin, 0, 2);
    const auto plain_state = checkpoint::OptimizerStateDict(plain);
    ASSERT_TRUE(plain_state.ok()) << plain_state.status();

    const auto zero = MakeZero<Base>(parameters, group);
    TrainSteps(*zero, parameters, 0, 2);
    ASSERT_EQ(zero->ConsolidateStateDict(), absl::OkStatus());
    if (group.rank() == 0) {
      const auto zero_state = checkpoint::OptimizerStateDict(*zero);
      ASSERT_TRUE(zero_state.ok()) << zero_state.status();
      EXPECT_TRUE(checkpoint::Identical(*zero_state, *plain_state));
    }
    const auto restored = MakeZero<Base>(parameters, group);
    ASSERT_EQ(checkpoint::LoadOptimizerStateDict(*restored, *plain_state), absl::OkStatus());
    const size_t whole = restored->state().size();
    restored->KeepOwnShare();
    EXPECT_LT(restored->state().size(), whole);
    TrainSteps(*restored, parameters, 2, 4);
    ExpectSameBits(parameters, expected);
  });
}

TEST(ZeroRedundancyOptimizer, ConsolidatedIsSavedAndLoadedByCheckpointOptimizer) {
  ExpectSavedAndLoadedByCheckpointOptimizer<torch::optim::SGD>();
  ExpectSavedAndLoadedByCheckpointOptimizer<torch::optim::Adam>();
  ExpectSavedAndLoadedByCheckpointOptimizer<torch::optim::Adagrad>();
}

TEST(ZeroRedundancyOptimizer, TakesFurtherGroups) {
  const std::vector<at::Tensor> expected = Parameters();
  const auto first = [](const std::vector<at::Tensor>& all) {
    return std::vector<at::Tensor>(all.begin(), all.begin() + 3);
  };
  const auto later = [](const std::vector<at::Tensor>& all) {
    return OptimizerParamGroup(std::vector<at::Tensor>(all.begin() + 3, all.end()));
  };
  torch::optim::Adam plain(first(expected), Settings<torch::optim::Adam>::Defaults());
  TrainSteps(plain, expected, 0, 2);
  plain.add_param_group(later(expected));
  TrainSteps(plain, expected, 2, 4);
  for (const bool views : {false, true}) {
    OnRanks(3, [&](ProcessGroup& group) {
      const std::vector<at::Tensor> parameters = Parameters();
      ZeroOptions options;
      options.parameters_as_bucket_view = views;
      const auto zero = ZeroRedundancyOptimizer<torch::optim::Adam>::Create(
          first(parameters), Settings<torch::optim::Adam>::Defaults(), &group, options);
      ASSERT_TRUE(zero.ok()) << zero.status();
      TrainSteps(**zero, parameters, 0, 2);
      ASSERT_EQ((*zero)->AddParamGroup(later(parameters)), absl::OkStatus());
      TrainSteps(**zero, parameters, 2, 4);
      ExpectSameBits(parameters, expected);
      EXPECT_THAT(std::string((*zero)->AddParamGroup(later(parameters)).message()),
                  HasSubstr("group 2 parameter 0 occurs twice"));
      TrainSteps(**zero, parameters, 4, 5);
    });
  }
}

}  // namespace
}  // namespace lockstep::ddp::zero
