// Scripted modules under DistributedDataParallel and the ZeRO optimizer. The reference is one process without them.

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"
#include "lockstep/models/scripted/script_module.h"
#include "lockstep/models/scripted/testing/modules.h"

namespace lockstep::models::scripted {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;

constexpr int kSteps = 5;  // the interpreter profiles the first two
constexpr double kLearningRate = 0.05;

ddp::DistributedDataParallel<ScriptModule> Wrapped(const ScriptModule& net, ProcessGroup& group,
                                                   const ddp::Options& options = {}) {
  auto wrapped = ddp::Wrap(net, &group, options);
  ThrowIfError(wrapped.status());
  return *std::move(wrapped);
}

torch::optim::SGD Sgd(const std::vector<at::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(kLearningRate).momentum(0.9));
}

at::Tensor BatchOf(int rank, int step) { return testing::Batch(6, 10 * step + rank); }

// `loss` of one module that takes the batches of all ranks one after the other, each from rank 0's buffers.
template <typename Loss>
std::vector<at::Tensor> TrainedAlone(ScriptModule net, int ranks, const Loss& loss) {
  torch::optim::SGD optimizer = Sgd(net->parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    std::vector<at::Tensor> before, of_rank_0;
    for (const at::Tensor& buffer : net->buffers()) before.push_back(buffer.clone());
    const auto set = [&net](const std::vector<at::Tensor>& values) {
      const std::vector<at::Tensor> buffers = net->buffers();
      for (size_t i = 0; i < buffers.size(); ++i) buffers[i].set_data(values[i].clone());
    };
    for (int rank = 0; rank < ranks; ++rank) {
      set(before);
      (loss(net, rank, step) / ranks).backward();
      if (rank == 0) {
        for (const at::Tensor& buffer : net->buffers()) of_rank_0.push_back(buffer.clone());
      }
    }
    set(of_rank_0);
    optimizer.step();
  }
  std::vector<at::Tensor> state = net->parameters();
  for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer);
  return state;
}

template <typename Loss>
void ExpectTrainsAsAlone(torch::jit::Module (*make)(), int ranks, const Loss& loss, const ddp::Options& options = {}) {
  const std::vector<at::Tensor> expected = TrainedAlone(ScriptModule(make()), ranks, loss);
  EXPECT_EQ(RunRanksOk(ranks,
                       [&](ProcessGroup& group) {
                         ScriptModule net(make());
                         const c10::NoGradGuard no_grad;
                         if (group.rank() != 0) {
                           for (at::Tensor& parameter : net->parameters()) parameter.fill_(7);
                         }
                         const c10::AutoGradMode grad(true);
                         auto ddp = Wrapped(net, group, options);
                         torch::optim::SGD optimizer = Sgd(ddp.parameters());
                         for (int step = 0; step < kSteps; ++step) {
                           optimizer.zero_grad();
                           loss(ddp, group.rank(), step).backward();
                           optimizer.step();
                         }
                         std::vector<at::Tensor> state = net->parameters();
                         if (group.rank() == 0) {
                           for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer);
                         }
                         for (size_t i = 0; i < state.size(); ++i)
                           EXPECT_TRUE(at::allclose(state[i], expected[i], 0, 1e-12)) << i;
                       }),
            absl::OkStatus());
}

TEST(ScriptedDdp, TrainsAsOneProcess) {
  const auto loss = [](auto& net, int rank, int step) { return net(BatchOf(rank, step)).toTensor().square().sum(); };
  ExpectTrainsAsAlone(testing::Mlp, 2, loss);
  ExpectTrainsAsAlone(testing::Mlp, 3, loss);
}

TEST(ScriptedDdp, BroadcastsABufferThatTheModuleAssigns) {
  const auto loss = [](auto& net, int rank, int step) { return net(BatchOf(rank, step)).toTensor().square().sum(); };
  ExpectTrainsAsAlone(testing::Averaging, 2, loss);
  ExpectTrainsAsAlone(testing::Averaging, 3, loss);
}

// Parameter c is never used, and b on some ranks in some steps.
TEST(ScriptedDdp, FindsUnusedParametersBehindADict) {
  ddp::Options options;
  options.find_unused_parameters = true;
  const auto loss = [](auto& net, int rank, int step) {
    const c10::IValue output = net(BatchOf(rank, step), /*use_b=*/(rank + step) % 3 != 0);
    const std::vector<at::Tensor> parts = output.toGenericDict().at("parts").toTensorVector();
    return output.toGenericDict().at("sum").toTensorVector()[0].square().sum() + parts.back().sum();
  };
  ExpectTrainsAsAlone(testing::Branches, 2, loss, options);
  ExpectTrainsAsAlone(testing::Branches, 3, loss, options);
}

TEST(ScriptedDdp, AnUnusedParameterIsNamed) {
  const std::vector<absl::Status> statuses = comm::testing::RunRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(ScriptModule(testing::Branches()), group);
    return TorchStatus("", [&] {
      for (int step = 0; step < 2; ++step) {
        ddp(BatchOf(group.rank(), step)).toGenericDict().at("sum").toTensorVector()[0].sum().backward();
      }
    });
  });
  for (const absl::Status& status : statuses)
    EXPECT_THAT(status.message(), HasSubstr("so it was not averaged: c;")) << status;
}

TEST(ScriptedDdp, TrainsAnotherMethodThanForward) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         ScriptModule net(testing::Mlp(), ScriptOptions{"hidden"});
                         ddp::Options options;
                         options.find_unused_parameters = true;
                         auto ddp = Wrapped(net, group, options);
                         ddp(BatchOf(group.rank(), 0)).toTensor().sum().backward();
                         const at::Tensor expected = (BatchOf(0, 0).sum(0) + BatchOf(1, 0).sum(0)) / 2;
                         EXPECT_TRUE(at::allclose(net->named_parameters()["first.weight"].grad()[0], expected));
                         EXPECT_FALSE(net->named_parameters()["last.weight"].grad().defined());
                       }),
            absl::OkStatus());
}

TEST(ScriptedDdp, ComputesInBfloat16) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         ScriptModule net(testing::Mlp());
                         net->to(at::kFloat);
                         ddp::Options options;
                         options.mixed_precision.emplace();
                         options.mixed_precision->param_dtype = at::kBFloat16;
                         options.mixed_precision->buffer_dtype = at::kBFloat16;
                         auto ddp = Wrapped(net, group, options);
                         torch::optim::SGD optimizer = Sgd(ddp.parameters());
                         double first = 0, last = 0;
                         for (int step = 0; step < 20; ++step) {
                           optimizer.zero_grad();
                           const at::Tensor output = ddp(BatchOf(group.rank(), 0).to(at::kFloat)).toTensor();
                           EXPECT_EQ(output.scalar_type(), at::kBFloat16);
                           const at::Tensor loss = output.to(at::kFloat).square().mean();
                           loss.backward();
                           EXPECT_EQ(ddp.parameters()[0].scalar_type(), at::kFloat);
                           EXPECT_EQ(ddp.parameters()[0].grad().scalar_type(), at::kFloat);
                           optimizer.step();
                           (step == 0 ? first : last) = loss.item<double>();
                         }
                         EXPECT_LT(last, 0.5 * first);
                       }),
            absl::OkStatus());
}

// As in Python.
TEST(ScriptedDdp, ASparseGradientIsAnError) {
  const std::vector<absl::Status> statuses = comm::testing::RunRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(ScriptModule(testing::SparseEmbedding()), group);
    return TorchStatus("", [&] { ddp(at::full({2}, 1, at::kLong)).toTensor().sum().backward(); });
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
}

TEST(ScriptedDdp, AModuleWithoutParametersIsAnError) {
  torch::jit::Module module = testing::Mlp();
  module.eval();
  const torch::jit::Module frozen = torch::jit::freeze(module);
  const std::vector<absl::Status> statuses =
      comm::testing::RunRanks(2, [&](ProcessGroup& group) { return ddp::Wrap(ScriptModule(frozen), &group).status(); });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("no parameter"));
  }
}

TEST(ScriptedDdp, DifferentModulesAreNamed) {
  const std::vector<absl::Status> statuses = comm::testing::RunRanks(2, [](ProcessGroup& group) {
    return ddp::Wrap(ScriptModule(group.rank() == 0 ? testing::Mlp() : testing::Averaging()), &group).status();
  });
  for (const absl::Status& status : statuses) EXPECT_THAT(status.message(), HasSubstr("first.weight")) << status;
}

TEST(ScriptedZero, StepsAsThePlainOptimizer) {
  using Adam = ddp::zero::ZeroRedundancyOptimizer<torch::optim::Adam>;
  const auto train = [](auto& ddp, torch::optim::Optimizer& optimizer, int rank) {
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      ddp(BatchOf(rank, step)).toTensor().square().sum().backward();
      optimizer.step();
    }
  };
  EXPECT_EQ(
      RunRanksOk(3,
                 [&](ProcessGroup& group) {
                   ScriptModule plain(testing::Mlp()), sharded(testing::Mlp());
                   auto plain_ddp = Wrapped(plain, group), sharded_ddp = Wrapped(sharded, group);
                   torch::optim::Adam adam(plain_ddp.parameters(), 0.01);
                   train(plain_ddp, adam, group.rank());
                   const auto zero = Adam::Create(sharded_ddp.parameters(), torch::optim::AdamOptions(0.01), &group);
                   ThrowIfError(zero.status());
                   train(sharded_ddp, **zero, group.rank());
                   EXPECT_TRUE(checkpoint::Identical(checkpoint::StateDict(*plain), checkpoint::StateDict(*sharded)));
                 }),
      absl::OkStatus());
}

// Branches has a tanh, and with ScriptOptions::optimize the first call would round its gradients otherwise.
TEST(ScriptedManager, WithoutOptimizationARunContinuesToTheSameBits) {
  const checkpoint::testing::Folder folder;
  const auto train = [](ScriptModule& net, ProcessGroup& group, int begin, int end) {
    ddp::Options options;
    options.find_unused_parameters = true;
    auto ddp = Wrapped(net, group, options);
    torch::optim::SGD optimizer(ddp.parameters(), kLearningRate);
    for (int step = begin; step < end; ++step) {
      optimizer.zero_grad();
      ddp(BatchOf(group.rank(), step)).toGenericDict().at("sum").toTensorVector()[0].square().sum().backward();
      optimizer.step();
    }
  };
  EXPECT_EQ(
      RunRanksOk(
          2,
          [&](ProcessGroup& group) {
            const auto make = [] {
              return ScriptModule(testing::Branches(), ScriptOptions{"forward", /*optimize=*/false});
            };
            ScriptModule whole = make(), half = make(), resumed = make();
            train(whole, group, 0, 6);
            train(half, group, 0, 3);
            const auto manager = checkpoint::Manager::Create(folder.path(), &group);
            ThrowIfError(manager.status());
            ThrowIfError((*manager)->Save(3, checkpoint::Value::Dict({{"state_dict", checkpoint::StateDict(*half)}})));
            const auto last = (*manager)->LoadLatest();
            ThrowIfError(last.status());
            ThrowIfError(checkpoint::LoadStateDict(*resumed, *(*last)->value.Find("state_dict")));
            train(resumed, group, 3, 6);
            EXPECT_TRUE(checkpoint::Identical(checkpoint::StateDict(*whole), checkpoint::StateDict(*resumed)));
          }),
      absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::models::scripted
