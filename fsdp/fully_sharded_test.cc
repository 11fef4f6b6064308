#include "lockstep/fsdp/fully_sharded.h"

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/fsdp/no_sync.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

constexpr int kSteps = 5, kVirtualRanks = 8;

// A frozen, a tied, an unused and a channels-last parameter, and sizes that are no multiples of 16.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    frozen->weight.set_requires_grad(false);
    at::Tensor(convolution->weight).set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
    tied = register_parameter("tied", embedding->weight);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embedding(tokens);              // n x 7 x 37
    x = at::relu(frozen(first(x)));                // n x 7 x 53
    x = convolution(x.unsqueeze(1)).mean({2, 3});  // n x 5
    return at::linear(last(x), tied);
  }
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(19, 37));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(37, 101));
  torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(101, 53));
  torch::nn::Conv2d convolution = register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 5, 3)));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(5, 37));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(9, 3));
  at::Tensor tied;
};
TORCH_MODULE(Net);

// Ranks are threads, which share the default generator, so the numbers do not come from it.
Net MakeNet(int seed = 0) {
  Net net;
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) {
    const at::Tensor numbers = at::arange(parameter.numel(), at::kFloat).add(parameter.numel() + seed);
    at::Tensor(parameter).copy_(numbers.mul(12.9898).sin().mul(0.2).view(parameter.sizes()));
  }
  return net;
}

at::Tensor Tokens(int step, int virtual_rank) {
  return at::arange(3 * 7, at::kLong).mul(step + 3).add(virtual_rank * 5).remainder(19).view({3, 7});
}

enum class Optimizer { kAdamW, kFusedAdamW, kFusedSgd };

// Smaller than most norms, so that it changes the gradients.
constexpr double kMaxNorm = 0.01;

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(Optimizer kind, const Tensors& parameters) {
  if (kind == Optimizer::kFusedSgd) {
    return std::make_unique<optim::SGD>(parameters,
                                        optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).fused(true));
  }
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(0.01).fused(kind == Optimizer::kFusedAdamW));
}

Tensors Copies(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

// Results by rank of ranks over shared memory.
std::vector<Tensors> OnRanks(int ranks, const std::function<absl::StatusOr<Tensors>(comm::ProcessGroup&)>& train) {
  std::vector<Tensors> results(ranks);
  comm::InitOptions options;
  options.backend = "shm";
  const auto statuses = comm::testing::InitRanks(options, ranks, [&](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(results[group.rank()], train(group));
    return group.Barrier();
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  return results;
}

absl::StatusOr<Tensors> TrainDdp(comm::ProcessGroup& group, Optimizer kind) {
  ddp::Options options;
  options.virtual_ranks = kVirtualRanks;
  options.find_unused_parameters = true;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(MakeNet(), &group, options));
  const auto optimizer = MakeOptimizer(kind, net.parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    for (const int v : net.VirtualRanks(step)) net(Tokens(step, v)).square().mean().backward();
    if (kind == Optimizer::kFusedSgd) {
      LOCKSTEP_RETURN_IF_ERROR(ddp::ClipGradNorm(group, net.parameters(), kMaxNorm).status());
    }
    optimizer->step();
  }
  return Copies(net.parameters());
}

absl::StatusOr<Tensors> TrainFsdp(comm::ProcessGroup& group, Optimizer kind, Options options) {
  options.virtual_ranks = kVirtualRanks;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(MakeNet(group.rank()), &group, options));
  const auto optimizer = MakeOptimizer(kind, net.shards());
  for (int step = 0; step < kSteps; ++step) {
    for (const int v : net.VirtualRanks(step)) net(Tokens(step, v)).square().mean().backward();
    if (kind == Optimizer::kFusedSgd) {
      LOCKSTEP_ASSIGN_OR_RETURN(const double norm, net.ClipGradNorm(kMaxNorm));
      EXPECT_GT(norm, kMaxNorm);
    }
    LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
  }
  return Copies(net.parameters());
}

void ExpectEqual(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "parameter " << i;
}

TEST(FullySharded, AnyNumberOfRanksHasTheBitsOfDistributedDataParallel) {
  for (const Optimizer kind : {Optimizer::kAdamW, Optimizer::kFusedAdamW, Optimizer::kFusedSgd}) {
    const Tensors expected = OnRanks(1, [&](comm::ProcessGroup& group) { return TrainDdp(group, kind); })[0];
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      SCOPED_TRACE(ranks);
      Options options;
      options.units = ranks % 2 == 0 ? std::vector<std::string>{"first", "last"} : std::vector<std::string>();
      options.unit_bytes = ranks == 3 ? 1 : 10000;
      for (const Tensors& found :
           OnRanks(ranks, [&](comm::ProcessGroup& group) { return TrainFsdp(group, kind, options); })) {
        ExpectEqual(found, expected);
      }
    }
  }
}

// Trains without virtual ranks, with `micro_steps` backward passes a step, of which all but the last are in `NoSync`.
template <typename NoSyncOf, typename Handle, typename Step>
absl::Status TrainPlainly(comm::ProcessGroup& group, Handle& net, int micro_steps, const Step& step) {
  for (int i = 0; i < kSteps; ++i) {
    for (int micro = 0; micro < micro_steps; ++micro) {
      const auto backward = [&] { net(Tokens(i, group.rank() + 10 * micro)).square().mean().backward(); };
      if (micro + 1 == micro_steps) {
        backward();
      } else {
        const NoSyncOf no_sync(net);
        backward();
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(step());
  }
  return absl::OkStatus();
}

TEST(FullySharded, TwoRanksHaveTheBitsOfDistributedDataParallelAlsoUnderNoSync) {
  for (const int micro_steps : {1, 3}) {
    const Tensors expected = OnRanks(2, [&](comm::ProcessGroup& group) -> absl::StatusOr<Tensors> {
      ddp::Options options;
      options.find_unused_parameters = true;
      LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(MakeNet(), &group, options));
      const auto optimizer = MakeOptimizer(Optimizer::kAdamW, net.parameters());
      LOCKSTEP_RETURN_IF_ERROR(TrainPlainly<ddp::NoSync>(group, net, micro_steps, [&] {
        optimizer->step();
        optimizer->zero_grad();
        return absl::OkStatus();
      }));
      return Copies(net.parameters());
    })[0];
    for (const Shard shard : {Shard::kElements, Shard::kRows}) {
      const auto found = OnRanks(2, [&](comm::ProcessGroup& group) -> absl::StatusOr<Tensors> {
        Options options;
        options.shard = shard;
        Net module = MakeNet();
        if (shard == Shard::kRows) module->convolution->weight.set_data(module->convolution->weight.contiguous());
        LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(module, &group, options));
        const auto optimizer = MakeOptimizer(Optimizer::kAdamW, net.shards());
        LOCKSTEP_RETURN_IF_ERROR(TrainPlainly<NoSync>(group, net, micro_steps, [&] { return net.Step(*optimizer); }));
        return Copies(net.parameters());
      });
      for (const Tensors& parameters : found) ExpectEqual(parameters, expected);
    }
  }
}

// A net of one weight, whose gradient is its input.
struct ScaleImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return (weight * x).sum(); }
  at::Tensor weight = register_parameter("weight", at::ones({50}));
  at::Tensor other = register_parameter("other", at::ones({3}));
};
TORCH_MODULE(Scale);

// Returns what `test` returns on rank 0; the other ranks must return OK or the same error.
absl::Status OnTwoRanks(const std::function<absl::Status(comm::ProcessGroup&)>& test, const char* backend = "shm") {
  comm::InitOptions options;
  options.backend = backend;
  options.timeout = absl::Seconds(20);
  return comm::testing::InitRanks(options, 2, test)[0];
}

TEST(FullySharded, SeveralBackwardPassesOfAStepAddUp) {
  EXPECT_EQ(OnTwoRanks([](comm::ProcessGroup& group) -> absl::Status {
              LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group));
              for (int i = 1; i <= 3; ++i) {
                net(at::full({50}, 2.0 * i * group.rank())).backward();
                if (i == 2) LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(1e9).status());  // it scales nothing
              }
              return net.Step([&] {
                const at::Tensor& gradient = net.shards()[0].grad();
                EXPECT_TRUE(gradient.equal(at::full_like(gradient, 1 + 2 + 3))) << gradient;
              });
            }),
            absl::OkStatus());
}

TEST(FullySharded, AParameterThatNoRankUsesHasNoGradientAndOneThatARankUsesHas) {
  EXPECT_EQ(OnTwoRanks([](comm::ProcessGroup& group) -> absl::Status {
              LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group));
              for (const bool used : {false, true}) {
                at::Tensor loss = net(at::ones({50}));
                if (used && group.rank() == 1) loss = loss + net.module()->other.sum() * 4;
                loss.backward();
                LOCKSTEP_RETURN_IF_ERROR(net.Step([&] {
                  for (size_t i = 0; i < net.shards().size(); ++i) {
                    const at::Tensor gradient = net.shards()[i].grad();
                    EXPECT_EQ(gradient.defined(), used || net.shard_names()[i] == "weight");
                    if (net.shard_names()[i] == "other" && gradient.defined()) {
                      EXPECT_TRUE(gradient.equal(at::full({3}, 2.0)));
                    }
                  }
                }));
              }
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

TEST(FullySharded, TheRanksHaveTheParametersInCommon) {
  EXPECT_EQ(OnTwoRanks([](comm::ProcessGroup& group) -> absl::Status {
              LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group));
              if (group.rank() == 1) net.module()->weight.data().fill_(8);
              LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
              EXPECT_TRUE(net.module()->weight.equal(at::full({50}, 8.0)));
              int64_t own = 0;
              for (const at::Tensor& shard : net.shards()) own += shard.numel();
              EXPECT_GE(own, group.rank() == 0 ? 16 : 21);
              EXPECT_LE(own, 37);
              return group.Barrier();
            }),
            absl::OkStatus());
}

template <typename MakeNetwork>
std::string WrapError(const Options& first, const Options& second, const MakeNetwork& make,
                      const char* backend = "shm") {
  return std::string(
      OnTwoRanks(
          [&](comm::ProcessGroup& group) { return Wrap(make(), &group, group.rank() == 0 ? first : second).status(); },
          backend)
          .message());
}

TEST(FullyShardedErrors, WrapNamesWhatIsWrong) {
  const auto scale = [] { return Scale(); };
  Options other;
  other.unit_bytes = 1;
  EXPECT_THAT(WrapError({}, other, scale), HasSubstr("unit_bytes 1"));
  Options paths;
  paths.units = {"layers.*"};
  EXPECT_THAT(WrapError(paths, paths, scale), HasSubstr("fsdp::Wrap: units: no parameter that is trained is inside"));
  Options too_few;
  too_few.virtual_ranks = 1;
  EXPECT_THAT(WrapError(too_few, too_few, scale), HasSubstr("virtual_ranks 1: expected at least 2"));
  EXPECT_THAT(WrapError({}, {}, scale, "gloo"), HasSubstr("their backend shares no memory"));
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

// The error of a mistake that both ranks make after Wrap().
std::string Mistake(const Options& options,
                    const std::function<absl::Status(FullyShardedDataParallel<Scale>& net)>& mistake) {
  return std::string(OnTwoRanks([&](comm::ProcessGroup& group) -> absl::Status {
                       LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, options));
                       absl::Status status;
                       const absl::Status thrown = TorchStatus("", [&] { status = mistake(net); });
                       return thrown.ok() ? status : thrown;
                     }).message());
}

TEST(FullyShardedErrors, AnOptimizerOfOtherTensorsIsRefused) {
  EXPECT_THAT(
      Mistake({},
              [](auto& net) {
                optim::SGD optimizer(net.parameters());
                net(at::ones({50})).backward();
                return net.Step(optimizer);
              }),
      HasSubstr("rank 0: fully sharded training: Step: the optimizer has a parameter that is not one of shards()"));
}

TEST(FullyShardedErrors, AStepWithoutBackwardIsRefused) {
  EXPECT_THAT(Mistake({}, [](auto& net) { return net.Step([] {}); }),
              HasSubstr("no backward has ended since the last step"));
}

TEST(FullyShardedErrors, ANormMustNotBeNegativeAndNeedsGradients) {
  EXPECT_THAT(Mistake({}, [](auto& net) { return net.ClipGradNorm(-1).status(); }),
              HasSubstr("expected a max_norm and a norm_type of at least 0, found -1 and 2"));
  EXPECT_THAT(Mistake({}, [](auto& net) { return net.ClipGradNorm(1).status(); }),
              HasSubstr("no backward has ended since the last step"));
}

TEST(FullyShardedErrors, AnErrorOfTheOptimizerFailsTheGroup) {
  EXPECT_THAT(Mistake({},
                      [](auto& net) {
                        net(at::ones({50})).backward();
                        return net.Step([] { TORCH_CHECK_VALUE(false, "no such step"); });
                      }),
              HasSubstr("the optimizer's step: no such step"));
}

TEST(FullyShardedErrors, AModuleThatWasConvertedIsRefused) {
  EXPECT_THAT(Mistake({},
                      [](auto& net) {
                        net.module()->to(torch::kDouble);
                        net(at::ones({50}));
                        return absl::OkStatus();
                      }),
              HasSubstr("the dtype or device of weight changed after fsdp::Wrap"));
}

TEST(FullyShardedErrors, VirtualRanksRunOneBackwardEach) {
  Options options;
  options.virtual_ranks = 4;
  const auto loop = [](auto& net, int passes, bool leave) {
    for ([[maybe_unused]] const int virtual_rank : net.VirtualRanks(3)) {
      for (int i = 0; i < passes; ++i) net(at::ones({50})).backward();
      if (leave) break;
    }
    for ([[maybe_unused]] const int virtual_rank : net.VirtualRanks(4)) break;
    return absl::OkStatus();
  };
  EXPECT_THAT(Mistake(options, [&](auto& net) { return loop(net, 0, false); }),
              HasSubstr("virtual rank 0 has run 0 backward passes, expected 1"));
  EXPECT_THAT(Mistake(options, [&](auto& net) { return loop(net, 2, false); }),
              HasSubstr("virtual rank 0 has run 2 backward passes, expected 1"));
  EXPECT_THAT(Mistake(options, [&](auto& net) { return loop(net, 1, true); }),
              HasSubstr("the loop over VirtualRanks() of step 3 was left early"));
  EXPECT_THAT(Mistake(options,
                      [](auto& net) {
                        net(at::ones({50}));
                        return absl::OkStatus();
                      }),
              HasSubstr("forward must be in a loop over VirtualRanks()"));
}

TEST(FullySharded, AfterAStepAllRanksHaveRank0sBuffers) {
  EXPECT_EQ(OnTwoRanks([](comm::ProcessGroup& group) -> absl::Status {
              LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(torch::nn::BatchNorm1d(4), &group));
              net(at::full({2, 4}, 10.0 * (group.rank() + 1))).sum().backward();
              LOCKSTEP_RETURN_IF_ERROR(net.Step([] {}));
              EXPECT_TRUE(net.module()->running_mean.equal(at::full({4}, 1.0f))) << net.module()->running_mean;
              return group.Barrier();
            }),
            absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::fsdp
