// The implementation to which //dp is compared.

#ifndef LOCKSTEP_TOOLS_BENCH_DATA_PARALLEL_PEER_H_
#define LOCKSTEP_TOOLS_BENCH_DATA_PARALLEL_PEER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/modules/container/sequential.h>

#include <vector>

#include "lockstep/models/resnet.h"

namespace lockstep {

// Runs a forward of the module on `devices`. On GPUs, with --config=cuda, by torch::nn::parallel::data_parallel. On the
// CPU, which LibTorch's scatter and gather do not support, by its algorithm (clone_every_call.h).
at::Tensor ForwardOfPeer(const torch::nn::Sequential& net, const at::Tensor& inputs,
                         const std::vector<c10::Device>& devices);
at::Tensor ForwardOfPeer(const models::ResNet& net, const at::Tensor& inputs, const std::vector<c10::Device>& devices);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_BENCH_DATA_PARALLEL_PEER_H_
