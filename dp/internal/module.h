#ifndef LOCKSTEP_DP_INTERNAL_MODULE_H_
#define LOCKSTEP_DP_INTERNAL_MODULE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::dp::internal {

// A Net is a module holder or a std::shared_ptr to a module.
template <typename Net>
using ModuleOf = std::decay_t<decltype(*std::declval<Net&>())>;

template <typename M>
std::shared_ptr<M> PtrOf(const std::shared_ptr<M>& module) {
  return module;
}
template <typename M>
std::shared_ptr<M> PtrOf(const torch::nn::ModuleHolder<M>& module) {
  return module.ptr();
}

// Throws c10::Error unless all parameters and buffers are on `device`.
void CheckOnDevice(torch::nn::Module& module, c10::Device device);

// Each parameter once, in order.
std::vector<at::Tensor> UniqueParameters(const torch::nn::Module& module);

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_MODULE_H_
