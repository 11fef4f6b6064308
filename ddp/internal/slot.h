#ifndef LOCKSTEP_DDP_INTERNAL_SLOT_H_
#define LOCKSTEP_DDP_INTERNAL_SLOT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ddp::internal {

// A parameter's part of a bucket's memory, and the gradient that lives there.
class Slot {
 public:
  Slot() = default;

  // In `buffer` from element `offset` on, with the shape of `parameter` and its strides where they leave no gaps.
  Slot(const at::Tensor& buffer, int64_t offset, const at::Tensor& parameter);

  // The slot as a tensor, with its own storage over the bucket's memory. It may become a parameter's gradient. It is
  // not an autograd view: an optimizer's zero_grad() detaches gradients in place, which a view refuses.
  const at::Tensor& tensor() const { return tensor_; }

  // Returns whether `gradient` lives here.
  bool Holds(const at::Tensor& gradient) const;

  // To be called before the slot is written again, if the parameter's gradient is another tensor. If somebody still
  // holds the gradient that lived here, that tensor moves to new memory with its numbers, and tensor() is a new tensor.
  void Reclaim();

 private:
  at::Tensor buffer_;
  at::Tensor tensor_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_SLOT_H_
