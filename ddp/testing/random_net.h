// The network of a random Combination.

#ifndef LOCKSTEP_DDP_TESTING_RANDOM_NET_H_
#define LOCKSTEP_DDP_TESTING_RANDOM_NET_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/ddp/testing/random_combination.h"

namespace lockstep::ddp::testing {

struct RandomNetImpl : torch::nn::Module {
  RandomNetImpl(const Combination& c, uint64_t seed);

  // `pass` and `rank`: what decides on the branches.
  at::Tensor forward(at::Tensor x, int64_t pass, int rank);

  // Changes the buffer after a backward. If it is broadcast before each forward, each rank's change differs.
  void MoveShift(int rank);

  const std::vector<LayerSpec> layers;
  const BranchUse branches;
  const double dropout;
  const bool broadcast_each_time;
  std::vector<at::Tensor> weights, biases;
  at::Tensor shift;
  torch::nn::BatchNorm1d norm{nullptr};
  std::optional<at::Generator> generator;  // of dropout; the default one if not set

 private:
  bool Takes(size_t layer, int64_t pass, int rank) const;
};
TORCH_MODULE(RandomNet);

at::Tensor InputsOf(const Combination& c, int64_t pass, int rank);

torch::optim::SGD Optimizer(const Combination& c, std::vector<at::Tensor> parameters);

// Each parameter once.
std::vector<at::Tensor> Once(const torch::nn::Module& module);

std::vector<at::Tensor> Copies(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::ddp::testing

#endif  // LOCKSTEP_DDP_TESTING_RANDOM_NET_H_
