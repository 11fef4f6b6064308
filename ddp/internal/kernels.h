#ifndef LOCKSTEP_DDP_INTERNAL_KERNELS_H_
#define LOCKSTEP_DDP_INTERNAL_KERNELS_H_

#include <ATen/core/Tensor.h>

namespace lockstep::ddp::internal {

// out = in * factor. Rounds like at::mul_out(out, in, wrapped scalar), which PyTorch's reducer calls: the factor has
// the tensor's dtype. For CPU tensors of float or double with one layout it saves the operator's 2 us of dispatch.
// Otherwise it calls the operator. May be in place.
void Scale(const at::Tensor& out, const at::Tensor& in, double factor);

// out = in, likewise.
void Copy(const at::Tensor& out, const at::Tensor& in);

// Returns whether any element is a NaN or an infinity. Reads the tensor once.
bool HasNonFinite(const at::Tensor& tensor);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_KERNELS_H_
