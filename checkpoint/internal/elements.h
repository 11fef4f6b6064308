// A tensor's elements as bytes.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_ELEMENTS_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_ELEMENTS_H_

#include <ATen/core/Tensor.h>

namespace lockstep::checkpoint::internal {

// The elements in order, contiguous, on the CPU, as integers of their size (complex128 stays complex128). Copies only
// if they are not in that form. Throws LibTorch's exceptions.
at::Tensor Elements(const at::Tensor& tensor);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_ELEMENTS_H_
