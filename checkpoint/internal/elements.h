// A tensor's elements as bytes.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_ELEMENTS_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_ELEMENTS_H_

#include <ATen/core/Tensor.h>

namespace lockstep::checkpoint::internal {

// The elements in order, one after the other, on the CPU, as integers of their size (complex128 as itself); a copy only
// where they do not stand so already. Throws what LibTorch throws.
at::Tensor Elements(const at::Tensor& tensor);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_ELEMENTS_H_
