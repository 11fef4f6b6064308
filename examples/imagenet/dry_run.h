// Checks whether a run would work.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_DRY_RUN_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_DRY_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/imagenet/input.h"
#include "lockstep/examples/imagenet/learner.h"

namespace lockstep::examples::imagenet {

// Reads the first batch of training and validation images and computes on both, without a step of the optimizer. With
// several virtual ranks, each of them computes on that batch.
// Describes the run: ranks, batches, the first loss, and the memory that a rank needs. On the CPU this memory is
// compared to the machine's free memory. ResourceExhausted: all `local_ranks` together need more. Every rank must call
// it.
absl::StatusOr<std::string> DryRun(Input& input, Learner& learner, comm::ProcessGroup* group, int local_ranks);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_DRY_RUN_H_
