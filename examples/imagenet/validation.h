// Passes that do not train: a validation, and the dry run.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_VALIDATION_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_VALIDATION_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/imagenet/meters.h"
#include "lockstep/examples/imagenet/run_state.h"

namespace lockstep::examples::imagenet {

// Evaluates the network on all validation images. Each image counts once. Each virtual rank has its own batches, so
// that the figures do not depend on the number of ranks. Every rank must call it. Returns meters that show all images,
// equal on all ranks, or the errors of the loader, the learner and the group.
absl::StatusOr<PassMeters> Validate(RunState& state, comm::ProcessGroup* group);

// Reads the first batch of training and validation images and computes on both, without a step of the optimizer. With
// several virtual ranks, each of them computes on that batch. Prints on rank 0 what the run is: ranks, batches, the
// first loss, and the memory that a rank needs. On the CPU this memory is compared to the machine's free memory.
// ResourceExhausted: all ranks of the machine together need more. Every rank must call it.
absl::Status DryRun(RunState& state, comm::ProcessGroup* group);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_VALIDATION_H_
