// Tests of fully sharded training on the device that DEVICE names: see device_ranks.h.

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/sharded/sharded.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/fsdp/full_state_dict.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/internal/device_streams.h"
#include "lockstep/fsdp/memory_report.h"
#include "lockstep/fsdp/no_sync.h"
#include "lockstep/fsdp/state_dict.h"
#include "lockstep/fsdp/testing/device_ranks.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int kVirtualRanks = 4, kSteps = 3;
constexpr double kMaxNorm = 0.01;

// A tied, a frozen and an unused parameter, and buffers.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    tied = register_parameter("tied", embedding->weight);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = at::relu(first(embedding(tokens)));  // n x 7 x 128
    if (between) between();
    x = frozen(norm(x));  // n x 7 x 64
    return at::linear(x, tied);
  }
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(32, 64));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(64, 128));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions(std::vector<int64_t>{128})));
  torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(128, 64));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(9, 3));
  at::Tensor tied;
  std::function<void()> between;  // may be null
};
TORCH_MODULE(Net);

Net MakeNet(c10::Device device, int seed = 0) {
  Net net;
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) {
    const at::Tensor numbers = at::arange(parameter.numel(), at::kFloat).add(parameter.numel() + seed);
    at::Tensor(parameter).copy_(numbers.mul(12.9898).sin().mul(0.2).view(parameter.sizes()));
  }
  if (!device.is_cpu()) MoveToTestDevice(*net);
  return net;
}

at::Tensor Tokens(int step, int virtual_rank) {
  return at::arange(3 * 7, at::kLong).mul(step + 3).add(virtual_rank * 5).remainder(32).view({3, 7}).to(TestDevice());
}

Tensors Copies(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

void ExpectEqual(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << "parameter " << i;
}

// A group of this rank alone. Every rank must call it.
absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> Alone(comm::ProcessGroup& group) {
  std::unique_ptr<comm::ProcessGroup> own;
  for (int rank = 0; rank < group.size(); ++rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<comm::ProcessGroup> made, group.NewGroup({rank}));
    if (made) own = std::move(made);
  }
  return own;
}

Options PagedUnits(std::vector<std::string> units = {"first", "norm"}) {
  Options options;
  options.units = std::move(units);
  options.residency = Residency::kPaged;
  options.virtual_ranks = kVirtualRanks;
  return options;
}

optim::AdamW OptimizerOf(const Tensors& parameters) { return optim::AdamW(parameters, optim::AdamWOptions(0.01)); }

absl::StatusOr<Tensors> TrainDdp(comm::ProcessGroup& group) {
  ddp::Options options;
  options.virtual_ranks = kVirtualRanks;
  options.find_unused_parameters = true;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(MakeNet(TestDevice()), &group, options));
  optim::AdamW optimizer = OptimizerOf(net.parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (const int v : net.VirtualRanks(step)) net(Tokens(step, v)).square().mean().backward();
    LOCKSTEP_RETURN_IF_ERROR(ddp::ClipGradNorm(group, net.parameters(), kMaxNorm).status());
    optimizer.step();
  }
  return Copies(net.parameters());
}

template <typename Handle>
absl::Status TrainSteps(Handle& net, torch::optim::Optimizer& optimizer, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    for (const int v : net.VirtualRanks(step)) net(Tokens(step, v)).square().mean().backward();
    LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(kMaxNorm).status());
    LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
  }
  return absl::OkStatus();
}

template <typename Handle>
absl::StatusOr<Tensors> Whole(Handle& net) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  for (const at::Tensor& parameter : net.parameters()) EXPECT_EQ(parameter.device(), TestDevice());
  return Copies(net.parameters());
}

absl::StatusOr<Tensors> TrainFsdp(comm::ProcessGroup& group, const Options& options,
                                  const std::function<void()>& between = nullptr) {
  Net module = MakeNet(TestDevice(), group.rank());
  module->between = between;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(module, &group, options));
  for (const at::Tensor& shard : net.shards()) EXPECT_EQ(shard.device(), TestDevice());
  optim::AdamW optimizer = OptimizerOf(net.shards());
  LOCKSTEP_RETURN_IF_ERROR(TrainSteps(net, optimizer, 0, 1));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(net(Tokens(0, 0)).dim(), 3);
  }
  LOCKSTEP_RETURN_IF_ERROR(TrainSteps(net, optimizer, 1, kSteps));
  return Whole(net);
}

TEST(Devices, AnyNumberOfRanksHasTheBitsOfDistributedDataParallel) {
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    OnDeviceRanks(ranks, [](comm::ProcessGroup& group) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto alone, Alone(group));
      LOCKSTEP_ASSIGN_OR_RETURN(const Tensors expected, TrainDdp(*alone));
      Options rows = PagedUnits({});
      rows.shard = Shard::kRows;
      Options one = PagedUnits();
      one.whole_units = 1;
      for (const Options& options : {PagedUnits(), rows, one}) {
        LOCKSTEP_ASSIGN_OR_RETURN(const Tensors found, TrainFsdp(group, options));
        ExpectEqual(found, expected);
      }
      return absl::OkStatus();
    });
  }
}

TEST(Devices, AnyNumberOfRanksHasTheSameBitsInMixedPrecision) {
  OnDeviceRanks(2, [](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto alone, Alone(group));
    for (const auto reduce_dtype : {at::kBFloat16, at::kFloat}) {
      Options options = PagedUnits();
      options.mixed_precision = MixedPrecision{at::kBFloat16, reduce_dtype};
      LOCKSTEP_ASSIGN_OR_RETURN(const Tensors expected, TrainFsdp(*alone, options));
      LOCKSTEP_ASSIGN_OR_RETURN(const Tensors found, TrainFsdp(group, options));
      ExpectEqual(found, expected);
    }
    return absl::OkStatus();
  });
}

// Work of forward, and so of backward, is on several streams, which use the same units.
TEST(Devices, StreamsMayChangeInForward) {
  OnDeviceRanks(2, [](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const Tensors expected, TrainFsdp(group, PagedUnits({})));
    const internal::SideStream side(TestDevice());
    std::unique_ptr<c10::OptionalStreamGuard> guard;
    Net module = MakeNet(TestDevice());
    module->between = [&] {
      std::optional<c10::Stream> stream;
      {
        const auto entered = side.Enter();  // waits for the stream of the first layers
        stream = internal::CurrentStream(TestDevice());
      }
      guard = std::make_unique<c10::OptionalStreamGuard>(stream);
    };
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(module, &group, PagedUnits({})));
    optim::AdamW optimizer = OptimizerOf(net.shards());
    for (int step = 0; step < kSteps; ++step) {
      for (const int v : net.VirtualRanks(step)) {
        const at::Tensor loss = net(Tokens(step, v)).square().mean();
        loss.backward();
        guard.reset();
        side.Await();
      }
      LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(kMaxNorm).status());
      LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const Tensors found, Whole(net));
    ExpectEqual(found, expected);
    return absl::OkStatus();
  });
}

TEST(Devices, ACheckpointContinuesOnTheCpuAndBack) {
  const checkpoint::testing::Folder folder;
  OnDeviceRanks(2, [&folder](comm::ProcessGroup& group) -> absl::Status {
    const std::string sharded = folder.path() + "/sharded", back = folder.path() + "/back";
    const std::string full = folder.path() + "/full.pt";
    const auto compose = [](const checkpoint::Value& model, const checkpoint::Value& optimizer) {
      return checkpoint::Value::Dict({{"model", model}, {"optimizer", optimizer}});
    };
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(MakeNet(TestDevice()), &group, PagedUnits()));
    optim::AdamW optimizer = OptimizerOf(net.shards());
    LOCKSTEP_RETURN_IF_ERROR(TrainSteps(net, optimizer, 0, 2));
    LOCKSTEP_ASSIGN_OR_RETURN(const Tensors saved, Whole(net));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto state, GetStateDict(net, optimizer));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded(sharded, state, &group));
    LOCKSTEP_RETURN_IF_ERROR(SaveFullStateDict(full, net, optimizer, compose));
    {
      LOCKSTEP_ASSIGN_OR_RETURN(auto cpu, Wrap(MakeNet(c10::kCPU, 5), &group, PagedUnits()));
      optim::AdamW on_cpu = OptimizerOf(cpu.shards());
      LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(sharded, cpu, on_cpu));
      {
        LOCKSTEP_ASSIGN_OR_RETURN(const auto whole, cpu.FullParameters());
        ExpectEqual(Copies(cpu.parameters()), saved);
      }
      LOCKSTEP_ASSIGN_OR_RETURN(const auto again, GetStateDict(cpu, on_cpu));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded(back, again, &group));
    }
    LOCKSTEP_RETURN_IF_ERROR(TrainSteps(net, optimizer, 2, 3));
    LOCKSTEP_ASSIGN_OR_RETURN(const Tensors expected, Whole(net));
    LOCKSTEP_ASSIGN_OR_RETURN(auto other, Wrap(MakeNet(TestDevice(), 7), &group, PagedUnits()));
    for (const bool from_full : {false, true}) {
      SCOPED_TRACE(from_full);
      optim::AdamW loaded = OptimizerOf(other.shards());
      LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(back, other, loaded));
      if (from_full) {
        loaded = OptimizerOf(other.shards());
        LOCKSTEP_RETURN_IF_ERROR(LoadFullOptimizerStateDict(full, {"optimizer"}, other, loaded));
      }
      LOCKSTEP_RETURN_IF_ERROR(TrainSteps(other, loaded, 2, 3));
      LOCKSTEP_ASSIGN_OR_RETURN(const Tensors found, Whole(other));
      ExpectEqual(found, expected);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<bool>> StepsInHalf(comm::ProcessGroup& group) {
  Options options = PagedUnits();
  options.mixed_precision = MixedPrecision{at::kHalf, at::kFloat};
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(MakeNet(TestDevice()), &group, options));
  optim::AdamW optimizer = OptimizerOf(net.shards());
  ddp::GradScalerOptions scaling;
  scaling.init_scale = 1LL << 40;
  scaling.backoff_factor = 1.0 / (1 << 12);
  scaling.group = &group;
  LOCKSTEP_ASSIGN_OR_RETURN(ddp::GradScaler scaler, ddp::GradScaler::Create(scaling));
  std::vector<bool> steps;
  for (int step = 0; step < 5; ++step) {
    for (const int v : net.VirtualRanks(step)) {
      scaler.Scale(net(Tokens(step, v)).to(at::kFloat).square().mean()).backward();
    }
    LOCKSTEP_RETURN_IF_ERROR(net.PrepareGradients());
    LOCKSTEP_RETURN_IF_ERROR(scaler.Unscale(optimizer));
    absl::StatusOr<bool> stepped;
    LOCKSTEP_RETURN_IF_ERROR(net.Step([&] { stepped = scaler.Step(optimizer); }));
    LOCKSTEP_RETURN_IF_ERROR(stepped.status());
    LOCKSTEP_RETURN_IF_ERROR(scaler.Update());
    steps.push_back(*stepped);
  }
  return steps;
}

TEST(Devices, AGradScalerSkipsTheSameStepsOnAnyNumberOfRanks) {
  OnDeviceRanks(2, [](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto alone, Alone(group));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<bool> expected, StepsInHalf(*alone));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<bool> found, StepsInHalf(group));
    EXPECT_EQ(found, expected);
    EXPECT_FALSE(found.front());
    EXPECT_TRUE(found.back());
    return absl::OkStatus();
  });
}

TEST(Devices, AParameterThatARankUsesHasAGradientAlsoUnderNoSync) {
  OnDeviceRanks(2, [](comm::ProcessGroup& group) -> absl::Status {
    Scale scale;
    MoveToTestDevice(*scale);
    Options options;
    options.residency = Residency::kPaged;
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(scale, &group, options));
    const at::Tensor x = at::ones({50}).to(TestDevice());
    for (const bool used : {false, true}) {
      {
        const NoSync no_sync(net);
        at::Tensor loss = net(x);
        if (used && group.rank() == 1) loss = loss + scale->other.sum() * 4;
        loss.backward();
      }
      net(x).backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step([&] {
        for (size_t i = 0; i < net.shards().size(); ++i) {
          const at::Tensor gradient = net.shards()[i].grad();
          const bool is_weight = net.shard_names()[i] == "weight";
          EXPECT_EQ(gradient.defined(), used || is_weight);
          if (gradient.defined()) EXPECT_TRUE(gradient.cpu().eq(2.0).all().item<bool>());
        }
      }));
    }
    return absl::OkStatus();
  });
}

// The shards' part of the memory is the formula's, and the rest some units.
TEST(Devices, ARankHasItsPartOfTheMemory) {
  OnDeviceRanks(2, [](comm::ProcessGroup& group) -> absl::Status {
    constexpr int64_t kWidth = 1024, kLayers = 8;
    torch::nn::Sequential mlp;
    for (int i = 0; i < kLayers; ++i) mlp->push_back(torch::nn::Linear(kWidth, kWidth));
    MoveToTestDevice(*mlp);
    Options options;
    options.units = {"*"};
    options.residency = Residency::kPaged;
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(mlp, &group, options));
    optim::AdamW optimizer(net.shards(), optim::AdamWOptions(1e-3));
    const at::Tensor x = at::ones({1, kWidth}).to(TestDevice());
    for (int step = 0; step < 2; ++step) {
      net(x).sum().backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
    }
    const MemoryReport estimated = EstimateMemory(net, /*states=*/2);
    const int64_t bytes = kLayers * (kWidth + 1) * kWidth * 4;
    EXPECT_NEAR(estimated.shards, bytes / 2.0, 1000);
    EXPECT_NEAR(estimated.units, 2.0 * bytes / kLayers, 1000);
    if (!OnGpu()) return absl::OkStatus();
    // All parameters were there before Wrap(). The allocator's workspaces are in the rest.
    LOCKSTEP_ASSIGN_OR_RETURN(const MemoryReport counted, CountMemory(net, optimizer));
    EXPECT_LT(counted.peak, estimated.peak + bytes / kLayers + (int64_t{40} << 20));
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace lockstep::fsdp::testing
