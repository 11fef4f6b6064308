#ifndef LOCKSTEP_DP_INTERNAL_COPY_H_
#define LOCKSTEP_DP_INTERNAL_COPY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace lockstep::dp::internal {

// Copies `tensor` to `device`, differentiably. Returns the tensor itself if it is already there or undefined. Copies to
// a GPU run on separate streams after the work queued on the current streams, and the device's current stream waits for
// them. Copies from the CPU use pinned memory. The host waits only for copies from a GPU to the CPU.
at::Tensor CopyTo(const at::Tensor& tensor, c10::Device device);

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_COPY_H_
