#include "lockstep/tools/bench/data_parallel_peer.h"

#include "lockstep/tools/bench/clone_every_call.h"

namespace lockstep {

at::Tensor ForwardOfPeer(const torch::nn::Sequential& net, const at::Tensor& inputs,
                         const std::vector<c10::Device>& devices) {
  return CloneEveryCall(*net, inputs, static_cast<int64_t>(devices.size()));
}

at::Tensor ForwardOfPeer(const models::ResNet& net, const at::Tensor& inputs, const std::vector<c10::Device>& devices) {
  return CloneEveryCall(*net, inputs, static_cast<int64_t>(devices.size()));
}

}  // namespace lockstep
