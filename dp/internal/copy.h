#ifndef LOCKSTEP_DP_INTERNAL_COPY_H_
#define LOCKSTEP_DP_INTERNAL_COPY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace lockstep::dp::internal {

// `tensor` on `device`, differentiably; the tensor itself where it is there already or undefined. To a GPU the copy
// runs on streams of its own, after what the current streams were given so far, and the device's current stream waits
// for it; from the CPU it goes by pinned memory. The host waits only for copies from a GPU to the CPU.
at::Tensor CopyTo(const at::Tensor& tensor, c10::Device device);

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_COPY_H_
