// Copies tensors to several devices and sums the gradients of the copies.

#ifndef LOCKSTEP_DP_BROADCAST_H_
#define LOCKSTEP_DP_BROADCAST_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace lockstep::dp {

// result[d][i] is tensors[i] on devices[d]. On the tensor's own device it shares the tensor's memory; on other devices
// it is a copy. Differentiable: the gradient of tensors[i] is the sum of its copies' gradients in the order of
// `devices`, so it has the same bits every time.
//
//   const auto weights = Broadcast({layer->weight}, {c10::Device("cuda:0"), c10::Device("cuda:1")});
//
// Copies to GPUs are queued on streams, and the host does not wait. Throws c10::ValueError if `devices` is empty or a
// tensor is undefined.
std::vector<std::vector<at::Tensor>> Broadcast(const std::vector<at::Tensor>& tensors,
                                               const std::vector<c10::Device>& devices);

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_BROADCAST_H_
