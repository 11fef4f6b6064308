// Without CUDA.

#include "lockstep/ddp/internal/stream_capture.h"

namespace lockstep::ddp::internal {

bool StreamIsCaptured(c10::Device) { return false; }

}  // namespace lockstep::ddp::internal
