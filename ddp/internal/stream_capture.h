#ifndef LOCKSTEP_DDP_INTERNAL_STREAM_CAPTURE_H_
#define LOCKSTEP_DDP_INTERNAL_STREAM_CAPTURE_H_

#include <c10/core/Device.h>

namespace lockstep::ddp::internal {

// Returns whether work on the current stream of `device` goes into a CUDA graph instead of running. False without CUDA
// and for other devices.
bool StreamIsCaptured(c10::Device device);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_STREAM_CAPTURE_H_
