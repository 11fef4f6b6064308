// Trains an image classifier, alone or as one of several ranks. This file and trainer.cc are the part to read.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/imagenet/config.h"

namespace lockstep::examples::imagenet {

// What a program returns that was told to stop and has saved where it was: sysexits' EX_TEMPFAIL.
inline constexpr int kResumableExitCode = 75;

// One rank's whole run, on `device`. `group` is null for a run in one process, without DDP; `local_ranks` is how many
// of its ranks this node has. Rank 0 reports and saves. Every rank must call it, with the same `config`.
//
// After SIGTERM or SIGUSR1 to any rank all of them finish the step that they are in; checkpoint.pt is saved, and the
// status is one of which IsResumable() is true. In a validation that is after it. Otherwise errors name what failed.
absl::Status Train(const TrainConfig& config, comm::ProcessGroup* group, int local_ranks, c10::Device device);

// Whether the run stopped because a signal asked it to, after saving; also of what launch::Spawn made of such a status.
bool IsResumable(const absl::Status& status);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_
