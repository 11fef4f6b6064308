#ifndef LOCKSTEP_DDP_INTERNAL_FLAT_H_
#define LOCKSTEP_DDP_INTERNAL_FLAT_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::ddp::internal {

// The numbers of the tensors, which are of one dtype and device, one tensor after the other in one dimension. A copy,
// outside the autograd graph.
at::Tensor Flatten(const std::vector<at::Tensor>& tensors);

// The reverse: copies to each tensor its part of `flat`.
void Unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_FLAT_H_
