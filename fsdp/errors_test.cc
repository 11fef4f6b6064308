// Mistakes that Wrap() and a handle refuse.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/no_sync.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::OnTwoRanks;
using testing::Scale;
using testing::Setting;

template <typename MakeNetwork>
std::string WrapError(const Options& first, const Options& second, const MakeNetwork& make,
                      const char* backend = "shm") {
  return std::string(OnTwoRanks(backend, [&](comm::ProcessGroup& group) {
                       return Wrap(make(), &group, group.rank() == 0 ? first : second).status();
                     }).message());
}

TEST(FullyShardedWrap, WrapNamesWhatIsWrong) {
  const auto scale = [] { return Scale(); };
  Options other;
  other.unit_bytes = 1;
  EXPECT_THAT(WrapError({}, other, scale), HasSubstr("unit_bytes 1"));
  Options paths;
  paths.units = {"layers.*"};
  EXPECT_THAT(WrapError(paths, paths, scale), HasSubstr("fsdp::Wrap: units: no parameter is inside of"));
  Options too_few;
  too_few.virtual_ranks = 1;
  EXPECT_THAT(WrapError(too_few, too_few, scale), HasSubstr("virtual_ranks 1: expected at least 2"));
  Options virtual_ranks;
  virtual_ranks.virtual_ranks = 4;
  EXPECT_THAT(WrapError({}, virtual_ranks, scale), HasSubstr("virtual_ranks 4"));
  int made = 0;  // by the ranks, one after the other
  const auto dtypes = [&made, mutex = std::make_shared<std::mutex>()] {
    const std::lock_guard<std::mutex> lock(*mutex);
    Scale net;
    if (made++ == 1) net->to(at::kDouble);
    return net;
  };
  EXPECT_THAT(WrapError({}, {}, dtypes), AllOf(HasSubstr("has weight Float"), HasSubstr("has weight Double")));
  Options none;
  none.whole_units = 0;
  EXPECT_THAT(WrapError(none, none, scale), HasSubstr("whole_units 0: expected 1 or more"));
  Options pages;
  pages.residency = Residency::kSharedPages;
  EXPECT_THAT(WrapError({}, pages, scale), HasSubstr("residency kSharedPages"));
  EXPECT_THAT(WrapError(pages, pages, scale, "gloo"), HasSubstr("their backend shares no memory"));
  const auto frozen = [] {
    Scale net;
    for (at::Tensor& parameter : net->parameters()) parameter.set_requires_grad(false);
    return net;
  };
  EXPECT_THAT(WrapError({}, {}, frozen), HasSubstr("no parameter requires gradients"));
  const auto views = [] {
    Scale net;
    net->other.set_data(net->weight.data().narrow(0, 0, 3));
    return net;
  };
  EXPECT_THAT(WrapError({}, {}, views), HasSubstr("other shares its memory with another parameter"));
}

class FullyShardedErrors : public ::testing::TestWithParam<Setting> {
 protected:
  // The error of a mistake that both ranks make after Wrap().
  std::string Mistake(const std::function<absl::Status(FullyShardedDataParallel<Scale>& net)>& mistake,
                      int virtual_ranks = 0) const {
    Options options = GetParam().options();
    options.virtual_ranks = virtual_ranks;
    return std::string(OnTwoRanks(GetParam().backend, [&](comm::ProcessGroup& group) -> absl::Status {
                         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, options));
                         absl::Status status;
                         const absl::Status thrown = TorchStatus("", [&] { status = mistake(net); });
                         return thrown.ok() ? status : thrown;
                       }).message());
  }
};
INSTANTIATE_TEST_SUITE_P(In, FullyShardedErrors, testing::AllSettings(), testing::NameOf);

TEST_P(FullyShardedErrors, AnOptimizerOfOtherTensorsIsRefused) {
  EXPECT_THAT(
      Mistake([](auto& net) {
        optim::SGD optimizer(net.parameters());
        net(at::ones({50})).backward();
        return net.Step(optimizer);
      }),
      HasSubstr("rank 0: fully sharded training: Step: the optimizer has a parameter that is not one of shards()"));
}

// They would find no gradients, and pass over the shards.
TEST_P(FullyShardedErrors, AnOptimizerThatIsCalledDirectlyIsTold) {
  const auto expect_told = [&](const std::function<void(torch::optim::Optimizer&)>& mistake, const auto& make) {
    const std::string error = Mistake([&](auto& net) {
      const auto optimizer = make(net.shards());
      for (int step = 0; step < 2; ++step) {  // a step before changes nothing
        if (step == 1) optimizer->zero_grad();
        net(at::ones({50})).backward();
        if (step == 0) LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
      }
      mistake(*optimizer);
      return absl::OkStatus();
    });
    EXPECT_THAT(error, HasSubstr("rank 0: fully sharded training: a shard has its gradient in Step(optimizer)"));
    EXPECT_THAT(error, HasSubstr("call net.Step(optimizer) in place of optimizer.step()"));
  };
  const auto step = [](torch::optim::Optimizer& optimizer) { optimizer.step(); };
  const auto clip = [](torch::optim::Optimizer& optimizer) {
    torch::nn::utils::clip_grad_norm_(optimizer.param_groups()[0].params(), 1);
  };
  for (const bool fused : {false, true}) {
    expect_told(step, [&](const auto& shards) {
      return std::make_unique<optim::SGD>(shards, optim::SGDOptions(0.1).fused(fused));
    });
  }
  const auto make = [](const auto& shards) { return std::make_unique<torch::optim::AdamW>(shards); };
  expect_told(step, make);
  expect_told(clip, make);
}

TEST_P(FullyShardedErrors, GradientsThatWereClippedNeedAStep) {
  EXPECT_THAT(Mistake([](auto& net) {
                optim::SGD optimizer(net.shards());
                net(at::ones({50})).backward();
                LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(1).status());
                optimizer.step();
                net(at::ones({50}));
                return absl::OkStatus();
              }),
              HasSubstr("after PrepareGradients() or ClipGradNorm(), net.Step() was not called"));
}

TEST_P(FullyShardedErrors, AStepUnderNoSyncIsTold) {
  EXPECT_THAT(Mistake([](auto& net) {
                const NoSync no_sync(net);
                net(at::ones({50})).backward();
                return net.Step([] {});
              }),
              HasSubstr("no backward has ended since the last step, but those under NoSync"));
}

TEST_P(FullyShardedErrors, AParameterThatIsNotShardedIsNamed) {
  EXPECT_THAT(
      Mistake([](auto& net) {
        net.module()->register_parameter("late", at::ones({2}));
        net(at::ones({50}));
        return absl::OkStatus();
      }),
      HasSubstr("rank 0: fully sharded training: parameter late was registered after fsdp::Wrap, so its gradient "
                "would not be averaged: wrap the module again"));
}

TEST_P(FullyShardedErrors, AStepWithoutBackwardIsRefused) {
  EXPECT_THAT(Mistake([](auto& net) { return net.Step([] {}); }),
              HasSubstr("no backward has ended since the last step"));
}

TEST_P(FullyShardedErrors, ANormMustNotBeNegativeAndNeedsGradients) {
  EXPECT_THAT(Mistake([](auto& net) { return net.ClipGradNorm(-1).status(); }),
              HasSubstr("expected a max_norm and a norm_type of at least 0, found -1 and 2"));
  EXPECT_THAT(Mistake([](auto& net) { return net.ClipGradNorm(1).status(); }),
              HasSubstr("no backward has ended since the last step"));
}

TEST_P(FullyShardedErrors, AnErrorOfTheOptimizerFailsTheGroup) {
  EXPECT_THAT(Mistake([](auto& net) {
                net(at::ones({50})).backward();
                return net.Step([] { TORCH_CHECK_VALUE(false, "no such step"); });
              }),
              HasSubstr("the optimizer's step: no such step"));
}

TEST_P(FullyShardedErrors, AModuleThatWasConvertedIsRefused) {
  EXPECT_THAT(Mistake([](auto& net) {
                net.module()->to(torch::kDouble);
                net(at::ones({50}));
                return absl::OkStatus();
              }),
              AnyOf(HasSubstr("the dtype or device of weight changed after fsdp::Wrap"),
                    HasSubstr("the unit of weight is used outside of forward and backward")));
}

TEST_P(FullyShardedErrors, VirtualRanksRunOneBackwardEach) {
  const auto loop = [](auto& net, int passes, bool leave) {
    for ([[maybe_unused]] const int virtual_rank : net.VirtualRanks(3)) {
      for (int i = 0; i < passes; ++i) net(at::ones({50})).backward();
      if (leave) break;
    }
    for ([[maybe_unused]] const int virtual_rank : net.VirtualRanks(4)) break;
    return absl::OkStatus();
  };
  EXPECT_THAT(Mistake([&](auto& net) { return loop(net, 0, false); }, 4),
              HasSubstr("virtual rank 0 has run 0 backward passes, expected 1"));
  EXPECT_THAT(Mistake([&](auto& net) { return loop(net, 2, false); }, 4),
              HasSubstr("virtual rank 0 has run 2 backward passes, expected 1"));
  EXPECT_THAT(Mistake([&](auto& net) { return loop(net, 1, true); }, 4),
              HasSubstr("the loop over VirtualRanks() of step 3 was left early"));
  EXPECT_THAT(Mistake(
                  [](auto& net) {
                    for ([[maybe_unused]] const int virtual_rank : net.VirtualRanks(3)) {
                      net(at::ones({50})).backward();
                      break;
                    }
                    return net.Step([] {});
                  },
                  4),
              HasSubstr("the loop over VirtualRanks() of step 3 was left early"));
  EXPECT_THAT(Mistake(
                  [](auto& net) {
                    net(at::ones({50}));
                    return absl::OkStatus();
                  },
                  4),
              HasSubstr("forward must be in a loop over VirtualRanks()"));
}

}  // namespace
}  // namespace lockstep::fsdp
