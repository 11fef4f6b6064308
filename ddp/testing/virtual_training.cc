#include "lockstep/ddp/testing/virtual_training.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/comm/tree_sum/sum_tree.h"
#include "lockstep/ddp/join.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp::testing {
namespace {

// Under a Join, until no virtual rank has inputs.
absl::Status TrainJoined(DistributedDataParallel<VirtualNet>& ddp, torch::optim::SGD& optimizer,
                         const comm::ProcessGroup& group, const VirtualCase& c) {
  JoinOptions options;
  options.divide_by_initial_world_size = c.divide_by_initial_world_size;
  Join join({ddp}, options);
  const std::vector<int> bounds = comm::EvenBounds(static_cast<int>(c.counts.size()), group.size());
  for (int step = 0;; ++step) {
    std::vector<int> with_inputs;
    for (int v = bounds[group.rank()]; v < bounds[group.rank() + 1]; ++v) {
      if (c.counts[v] > step) with_inputs.push_back(v);
    }
    if (with_inputs.empty()) return join.Finish();
    optimizer.zero_grad(c.set_to_none);
    for (const int v : ddp.VirtualRanks(step, with_inputs)) LossOf(ddp, InputOf(c, step, v)).backward();
    optimizer.step();
  }
}

at::Tensor SumInTreeOf(const std::vector<at::Tensor>& leaves, size_t begin, size_t end) {
  if (end - begin == 1) return leaves[begin];
  size_t p = 1;
  while (2 * p < end - begin) p *= 2;
  return SumInTreeOf(leaves, begin, begin + p) + SumInTreeOf(leaves, begin + p, end);
}

}  // namespace

VirtualNetImpl::VirtualNetImpl(bool sparse)
    : convolution(register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3)))),
      norm(register_module("norm", torch::nn::BatchNorm2d(4))),
      embedding(register_module("embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(sparse)))),
      head(register_module("head", torch::nn::Linear(4 * 4 * 4, 3))),
      even(register_module("even", torch::nn::Linear(3, 3))),
      odd(register_module("odd", torch::nn::Linear(3, 3))) {
  int seed = 0;
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : parameters()) {
    parameter.copy_(at::arange(parameter.numel()).add(++seed).mul(12.9898).sin().mul(0.3).view_as(parameter));
  }
}

at::Tensor VirtualNetImpl::forward(const at::Tensor& images, const at::Tensor& words, int branch) {
  at::Tensor x = head(norm(convolution(images)).relu().flatten(1));
  x = x * embedding(words).sum(1);
  if (branch != 1) x = even(x);
  if (branch != 0) x = odd(x);
  return x;
}

VirtualInput InputOf(const VirtualCase& c, int step, int virtual_rank, int part) {
  VirtualInput input;
  input.images =
      at::arange(3 * 2 * 6 * 6).add(1.7 * step + 3.1 * virtual_rank + 0.3 * part).mul(78.233).sin().view({3, 2, 6, 6});
  input.words =
      at::arange(9).mul(1 + virtual_rank % 3).add(step).remainder(4).view({3, 3});  // some repeat, 4 is unused
  if (c.branches) input.branch = (virtual_rank + step) % 2;
  return input;
}

at::Tensor LossOf(const at::Tensor& output) { return output.to(at::kFloat).pow(2).mul(at::arange(3).add(1)).sum(); }

torch::optim::SGD MomentumSgd(const std::vector<at::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.01).momentum(0.9));
}

State StateOf(const VirtualNet& net, torch::optim::SGD& optimizer) {
  State state;
  for (const at::Tensor& parameter : net->parameters()) {
    state.push_back(parameter.detach().clone());
    state.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::zeros({0}));
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    const auto& momentum = static_cast<torch::optim::SGDParamState&>(*found->second).momentum_buffer();
    if (momentum.defined()) state.push_back(momentum.clone());
  }
  for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer.clone());
  return state;
}

at::Tensor SumInTree(const std::vector<at::Tensor>& leaves) { return SumInTreeOf(leaves, 0, leaves.size()); }

void TrainStep(DistributedDataParallel<VirtualNet>& ddp, torch::optim::SGD& optimizer, int step, const VirtualCase& c) {
  optimizer.zero_grad(c.set_to_none);
  for (const int virtual_rank : ddp.VirtualRanks(step)) {
    for (int part = 0; part < c.parts; ++part) {
      std::unique_ptr<NoSync> no_sync;
      if (part + 1 < c.parts) no_sync = std::make_unique<NoSync>(ddp);
      LossOf(ddp, InputOf(c, step, virtual_rank, part)).backward();
    }
  }
  optimizer.step();
}

State Train(int ranks, const VirtualCase& c) {
  std::vector<State> states(ranks);
  const auto body = [&](comm::ProcessGroup& group) {
    return TorchStatus("", [&] {
      VirtualNet net(c.sparse);
      auto ddp = Wrapped(net, group, c.options);
      if (c.hook) ThrowIfError(ddp.RegisterHook(c.hook(&group)));
      torch::optim::SGD optimizer = MomentumSgd(ddp.parameters());
      State& state = states[group.rank()];
      if (c.counts.empty()) {
        for (int step = 0; step < VirtualCase::kSteps; ++step) TrainStep(ddp, optimizer, step, c);
        state = StateOf(net, optimizer);
      } else {
        ThrowIfError(TrainJoined(ddp, optimizer, group, c));
        for (const at::Tensor& parameter : net->parameters()) state.push_back(parameter.detach().clone());
        for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer.clone());
      }
    });
  };
  comm::InitOptions options;
  options.backend = c.backend;
  const auto results =
      c.backend == "threads" ? comm::testing::RunRanks(ranks, body) : comm::testing::InitRanks(options, ranks, body);
  for (const absl::Status& status : results) EXPECT_EQ(status, absl::OkStatus());
  const auto buffers = static_cast<int>(c.counts.empty() ? VirtualNet()->buffers().size() : 0);
  const auto compared = [buffers](const State& state) { return State(state.begin(), state.end() - buffers); };
  for (const State& state : states) {
    if (static_cast<int>(state.size()) < buffers) return {};  // it failed
    ExpectSameBits(compared(state), compared(states[0]), "the ranks differ");
  }
  return states[0];
}

void ExpectSameOnAnyNumberOfRanks(int virtual_ranks, VirtualCase c, const std::string& what) {
  c.options.virtual_ranks = virtual_ranks;
  const State expected = Train(virtual_ranks, c);
  for (int ranks = 1; ranks < virtual_ranks; ++ranks) {
    ExpectSameBits(Train(ranks, c), expected, absl::StrCat(what, ", ", virtual_ranks, " virtual ranks on ", ranks));
  }
}

}  // namespace lockstep::ddp::testing
