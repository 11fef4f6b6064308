#ifndef LOCKSTEP_DDP_INTERNAL_SLOT_H_
#define LOCKSTEP_DDP_INTERNAL_SLOT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::ddp::internal {

// A parameter's place in a bucket, and the gradient that lives there.
class Slot {
 public:
  Slot() = default;

  // In `buffer` from element `offset` on, with the shape of `parameter` and its strides where they leave no gaps.
  Slot(const at::Tensor& buffer, int64_t offset, const at::Tensor& parameter);

  // The place as a tensor, with a storage of its own over the bucket's memory. It is no autograd view: optimizers'
  // zero_grad() detaches gradients in place, which a view refuses. It may be made a parameter's gradient.
  const at::Tensor& tensor() const { return tensor_; }

  // Whether `gradient` lives here.
  bool Holds(const at::Tensor& gradient) const;

  // To be called before the place is written anew, when the parameter's gradient is another tensor: if anybody still
  // holds the one that lived here, it gets the numbers in memory of its own, and tensor() is a new one.
  void Reclaim();

 private:
  at::Tensor buffer_;
  at::Tensor tensor_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_SLOT_H_
