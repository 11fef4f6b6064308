// A network with all kinds of parameters, and its training, for tests of checkpoints.

#ifndef LOCKSTEP_FSDP_TESTING_SMALL_NET_H_
#define LOCKSTEP_FSDP_TESTING_SMALL_NET_H_

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::fsdp::testing {

using Tensors = std::vector<at::Tensor>;

constexpr int kVirtualRanks = 4;

// A frozen, a tied, an unused and a channels-last parameter, one without dimensions, buffers, and sizes that 16 does
// not divide.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl();
  at::Tensor forward(const at::Tensor& tokens);

  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(19, 37));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(37, 41));
  torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(41, 23));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(1));
  torch::nn::Conv2d convolution = register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 5, 3)));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(5, 37));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(9, 3));
  at::Tensor scale = register_parameter("scale", at::ones({}));
  at::Tensor tied;
};
TORCH_MODULE(SmallNet);

// Its numbers do not come from the default generator, which ranks that are threads share.
SmallNet MakeNet(int seed, bool channels_last);

at::Tensor Tokens(int step, int virtual_rank);

enum class OptimizerKind { kAdamW, kNAdam, kFusedSgd };

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(OptimizerKind kind, const Tensors& parameters);

Tensors Copies(const Tensors& tensors);

// Results by rank of ranks over shared memory.
std::vector<Tensors> OnRanks(int ranks, const std::function<absl::StatusOr<Tensors>(comm::ProcessGroup&)>& train);

}  // namespace lockstep::fsdp::testing

#endif  // LOCKSTEP_FSDP_TESTING_SMALL_NET_H_
