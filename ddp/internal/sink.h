#ifndef LOCKSTEP_DDP_INTERNAL_SINK_H_
#define LOCKSTEP_DDP_INTERNAL_SINK_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep::ddp::internal {

// The same tensors, each behind a node of the autograd graph that calls `on_backward` before its gradient passes, so in
// the backward that the loss began, before any that it nests. A node a tensor: one that the loss does not depend on
// stays out of backward, with what is behind it. Tensors without a grad_fn are returned as they are.
std::vector<at::Tensor> PassThroughSink(const std::vector<at::Tensor>& outputs,
                                        const std::function<void()>& on_backward);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_SINK_H_
