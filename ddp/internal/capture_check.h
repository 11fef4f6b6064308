// Which steps a CUDA graph can hold.

#ifndef LOCKSTEP_DDP_INTERNAL_CAPTURE_CHECK_H_
#define LOCKSTEP_DDP_INTERNAL_CAPTURE_CHECK_H_

#include <string>

#include "absl/status/status.h"

namespace lockstep::ddp::internal {

// A step that is being captured.
struct CapturedStep {
  bool layout_may_change = false;
  bool averaged = true;  // false under NoSync
  bool finds_unused = false;
  bool looks_for_non_finite = false;
  bool virtual_ranks = false;
  std::string sparse_parameter;  // one whose gradient is sparse; empty: there is none
};

// OK if a CUDA graph can hold the step. A graph repeats the work of the device, so the host must not read anything of
// the step, and nothing may differ in the next one. Otherwise FailedPrecondition with the reason.
absl::Status CheckCapture(int rank, const CapturedStep& step);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_CAPTURE_CHECK_H_
