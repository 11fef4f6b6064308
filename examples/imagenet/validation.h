// Validates a network.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_VALIDATION_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_VALIDATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/imagenet/meters.h"
#include "lockstep/examples/imagenet/reporter.h"
#include "lockstep/examples/imagenet/run_state.h"

namespace lockstep::examples::imagenet {

// A pass of one group of ranks over the validation images. Each image counts once. Each virtual rank has its own
// batches, so that the figures do not depend on the number of ranks.
class Validation {
 public:
  // `state` and `group` are borrowed.
  Validation(RunState& state, comm::ProcessGroup* group) : state_(state), group_(group) {}

  // Evaluates the network on all images. Every rank must call it. Returns the errors of the loader, the learner and the
  // group.
  absl::Status Run();

  // Reports the result on rank 0. Call it after Run().
  absl::Status Report();

  // The top-1 accuracy in percent. It is equal on all ranks after Run().
  double acc1() const { return meters_.top1.average(); }

 private:
  absl::Status EvaluateShare(int64_t virtual_rank);

  RunState& state_;
  comm::ProcessGroup* const group_;
  PassMeters meters_{/*parts=*/1};
  StepReport report_;
  absl::Duration waited_;  // for the images of the shares before
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_VALIDATION_H_
