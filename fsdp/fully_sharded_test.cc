#include "lockstep/fsdp/fully_sharded.h"

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/fsdp/no_sync.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp {
namespace {

using testing::OnTwoRanks;
using testing::Scale;
using testing::Setting;
using Tensors = std::vector<at::Tensor>;

constexpr int kSteps = 3, kVirtualRanks = 8;

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

// Results by rank.
std::vector<Tensors> OnRanks(int ranks, const std::function<absl::StatusOr<Tensors>(comm::ProcessGroup&)>& train,
                             const std::string& backend = "shm") {
  std::vector<Tensors> results(ranks);
  comm::InitOptions options;
  options.backend = backend;
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
    if (step % 2 == 1) {
      const torch::NoGradGuard no_grad;
      EXPECT_EQ(net(Tokens(step, 0)).dim(), 2);
    }
    for (const int v : net.VirtualRanks(step)) net(Tokens(step, v)).square().mean().backward();
    if (kind == Optimizer::kFusedSgd) {
      LOCKSTEP_ASSIGN_OR_RETURN(const double norm, net.ClipGradNorm(kMaxNorm));
      EXPECT_GT(norm, kMaxNorm);
    }
    LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  return Copies(net.parameters());
}

void ExpectEqual(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "parameter " << i;
}

class FullySharded : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Bits, FullySharded, testing::AllSettings(), testing::NameOf);

TEST_P(FullySharded, AnyNumberOfRanksHasTheBitsOfDistributedDataParallel) {
  for (const Optimizer kind : {Optimizer::kAdamW, Optimizer::kFusedAdamW, Optimizer::kFusedSgd}) {
    if (kind == Optimizer::kAdamW && GetParam().name != std::string("SharedPages")) continue;  // to take less time
    const Tensors expected = OnRanks(1, [&](comm::ProcessGroup& group) { return TrainDdp(group, kind); })[0];
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      SCOPED_TRACE(ranks);
      Options options = GetParam().options();
      options.units = ranks % 2 == 0 ? std::vector<std::string>{"first", "last"} : std::vector<std::string>();
      options.unit_bytes = ranks == 3 ? 1 : 10000;
      for (const Tensors& found : OnRanks(
               ranks, [&](comm::ProcessGroup& group) { return TrainFsdp(group, kind, options); }, GetParam().backend)) {
        ExpectEqual(found, expected);
      }
    }
  }
}

absl::StatusOr<Tensors> TrainMixed(comm::ProcessGroup& group, Options options) {
  options.virtual_ranks = kVirtualRanks;
  options.unit_bytes = 10000;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(MakeNet(group.rank()), &group, options));
  for (const at::Tensor& parameter : net.parameters()) EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  for (const at::Tensor& shard : net.shards()) EXPECT_EQ(shard.scalar_type(), at::kFloat);
  const auto optimizer = MakeOptimizer(Optimizer::kFusedAdamW, net.shards());
  for (int step = 0; step < kSteps; ++step) {
    for (const int v : net.VirtualRanks(step)) {
      const at::Tensor output = net(Tokens(step, v));
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      output.square().mean().backward();
    }
    LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(kMaxNorm).status());
    LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
  }
  EXPECT_EQ(net.FullParameters(Access::kWrite).status().code(), absl::StatusCode::kFailedPrecondition);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  return Copies(net.parameters());
}

TEST_P(FullySharded, AnyNumberOfRanksHasTheSameBitsInMixedPrecision) {
  for (const auto reduce_dtype : {std::optional<at::ScalarType>(), std::optional(at::kFloat)}) {
    Options options = GetParam().options();
    options.mixed_precision = MixedPrecision{at::kBFloat16, reduce_dtype};
    const auto train = [&](comm::ProcessGroup& group) { return TrainMixed(group, options); };
    const Tensors expected = OnRanks(1, [&](comm::ProcessGroup& group) {
      Options one = options;
      one.residency = Residency::kAuto;
      return TrainMixed(group, one);
    })[0];
    for (const int ranks : {2, 3, 5}) {
      SCOPED_TRACE(ranks);
      for (const Tensors& found : OnRanks(ranks, train, GetParam().backend)) ExpectEqual(found, expected);
    }
  }
}

TEST_P(FullySharded, MixedPrecisionRefusesOtherNumbers) {
  Options options = GetParam().options();
  options.mixed_precision = MixedPrecision{at::kLong, at::kFloat};
  const absl::Status status = OnTwoRanks(
      GetParam().backend, [&](comm::ProcessGroup& group) { return Wrap(Scale(), &group, options).status(); });
  EXPECT_EQ(
      status.message(),
      "rank 0: fsdp::Wrap: mixed_precision: expected real floating-point dtypes, found Long, Float and, of weight, "
      "Float");
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

TEST_P(FullySharded, TwoRanksHaveTheBitsOfDistributedDataParallelAlsoUnderNoSync) {
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
      const auto found = OnRanks(
          2,
          [&](comm::ProcessGroup& group) -> absl::StatusOr<Tensors> {
            Options options = GetParam().options();
            options.shard = shard;
            options.unit_bytes = 10000;
            Net module = MakeNet();
            if (shard == Shard::kRows) module->convolution->weight.set_data(module->convolution->weight.contiguous());
            LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(module, &group, options));
            const auto optimizer = MakeOptimizer(Optimizer::kAdamW, net.shards());
            LOCKSTEP_RETURN_IF_ERROR(
                TrainPlainly<NoSync>(group, net, micro_steps, [&] { return net.Step(*optimizer); }));
            LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
            return Copies(net.parameters());
          },
          GetParam().backend);
      for (const Tensors& parameters : found) ExpectEqual(parameters, expected);
    }
  }
}

// The penalty is on the gradient of the input, so its backward goes through the backward.
at::Tensor Penalized(const at::Tensor& output, const at::Tensor& input) {
  const at::Tensor loss = output.square().mean();
  return loss + torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0].norm();
}

TEST_P(FullySharded, DoubleBackwardHasTheBitsOfDistributedDataParallel) {
  const auto make = [] {
    torch::nn::Sequential mlp(torch::nn::Linear(7, 33), torch::nn::Tanh(), torch::nn::Linear(33, 5));
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : mlp->parameters())
      parameter.copy_(at::arange(parameter.numel(), at::kFloat).sin().view(parameter.sizes()));
    return mlp;
  };
  const auto train = [](comm::ProcessGroup& group, auto& net, const auto& step) -> absl::StatusOr<Tensors> {
    for (int i = 0; i < kSteps; ++i) {
      const at::Tensor x = at::arange(21.0).mul(i + 2 * group.rank() + 1).sin().view({3, 7}).requires_grad_();
      Penalized(net(x), x).backward();
      LOCKSTEP_RETURN_IF_ERROR(step());
    }
    return Tensors();
  };
  const Tensors expected = OnRanks(2, [&](comm::ProcessGroup& group) -> absl::StatusOr<Tensors> {
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(make(), &group));
    const auto optimizer = MakeOptimizer(Optimizer::kAdamW, net.parameters());
    LOCKSTEP_RETURN_IF_ERROR(train(group, net, [&] {
                               optimizer->step();
                               optimizer->zero_grad();
                               return absl::OkStatus();
                             }).status());
    return Copies(net.parameters());
  })[0];
  const auto found = OnRanks(
      2,
      [&](comm::ProcessGroup& group) -> absl::StatusOr<Tensors> {
        Options options = GetParam().options();
        options.unit_bytes = 500;
        options.whole_units = 1;
        LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(make(), &group, options));
        const auto optimizer = MakeOptimizer(Optimizer::kAdamW, net.shards());
        LOCKSTEP_RETURN_IF_ERROR(train(group, net, [&] { return net.Step(*optimizer); }).status());
        LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
        return Copies(net.parameters());
      },
      GetParam().backend);
  for (const Tensors& parameters : found) ExpectEqual(parameters, expected);
}

TEST_P(FullySharded, SeveralBackwardPassesOfAStepAddUp) {
  EXPECT_EQ(OnTwoRanks(GetParam().backend,
                       [&](comm::ProcessGroup& group) -> absl::Status {
                         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, GetParam().options()));
                         for (int i = 1; i <= 3; ++i) {
                           net(at::full({50}, 2.0 * i * group.rank())).backward();
                         }
                         return net.Step([&] {
                           const at::Tensor& gradient = net.shards()[0].grad();
                           EXPECT_TRUE(gradient.equal(at::full_like(gradient, 1 + 2 + 3))) << gradient;
                         });
                       }),
            absl::OkStatus());
}

TEST_P(FullySharded, AParameterThatNoRankUsesHasNoGradientAndOneThatARankUsesHas) {
  EXPECT_EQ(OnTwoRanks(GetParam().backend,
                       [&](comm::ProcessGroup& group) -> absl::Status {
                         LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Scale(), &group, GetParam().options()));
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

TEST_P(FullySharded, AfterAStepAllRanksHaveRank0sBuffers) {
  EXPECT_EQ(
      OnTwoRanks(GetParam().backend,
                 [&](comm::ProcessGroup& group) -> absl::Status {
                   LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(torch::nn::BatchNorm1d(4), &group, GetParam().options()));
                   net(at::full({2, 4}, 10.0 * (group.rank() + 1))).sum().backward();
                   LOCKSTEP_RETURN_IF_ERROR(net.Step([] {}));
                   EXPECT_TRUE(net.module()->running_mean.equal(at::full({4}, 1.0f))) << net.module()->running_mean;
                   return group.Barrier();
                 }),
      absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::fsdp
