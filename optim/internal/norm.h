// The length of a tensor.

#ifndef LOCKSTEP_OPTIM_INTERNAL_NORM_H_
#define LOCKSTEP_OPTIM_INTERNAL_NORM_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_vector_norm.h>

namespace lockstep::optim::internal {

// The Euclidean norm, computed in double. Waits for the tensor's device.
inline double Norm(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor, 2, at::OptionalIntArrayRef(), /*keepdim=*/false, at::kDouble).item<double>();
}

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_NORM_H_
