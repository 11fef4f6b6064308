#include <torch/nn/parallel/data_parallel.h>

#include "lockstep/tools/bench/clone_every_call.h"
#include "lockstep/tools/bench/data_parallel_peer.h"

namespace lockstep {
namespace {

template <typename Net>
at::Tensor Forward(const Net& net, const at::Tensor& inputs, const std::vector<c10::Device>& devices) {
  if (devices[0].is_cpu()) return CloneEveryCall(*net, inputs, static_cast<int64_t>(devices.size()));
  return torch::nn::parallel::data_parallel(net, inputs, devices);
}

}  // namespace

at::Tensor ForwardOfPeer(const torch::nn::Sequential& net, const at::Tensor& inputs,
                         const std::vector<c10::Device>& devices) {
  return Forward(net, inputs, devices);
}

at::Tensor ForwardOfPeer(const models::ResNet& net, const at::Tensor& inputs, const std::vector<c10::Device>& devices) {
  return Forward(net, inputs, devices);
}

}  // namespace lockstep
