#ifndef LOCKSTEP_DDP_HOOKS_INTERNAL_SAME_PART_H_
#define LOCKSTEP_DDP_HOOKS_INTERNAL_SAME_PART_H_

#include <ATen/core/Tensor.h>

namespace lockstep::ddp::hooks::internal {

// The part of `whole` at the position of `part` in `buffer`. `whole` has `buffer`'s shape.
inline at::Tensor SamePart(const at::Tensor& whole, const at::Tensor& buffer, const at::Tensor& part) {
  return whole.as_strided(part.sizes(), part.strides(),
                          part.storage_offset() - buffer.storage_offset() + whole.storage_offset());
}

}  // namespace lockstep::ddp::hooks::internal

#endif  // LOCKSTEP_DDP_HOOKS_INTERNAL_SAME_PART_H_
