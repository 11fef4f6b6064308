// Trains an image classifier, alone or as one of several ranks. To read the example, start with this file and
// trainer.cc.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/world.h"
#include "lockstep/examples/imagenet/config.h"

namespace lockstep::examples::imagenet {

// The exit code of a program that was asked to stop and has saved its state: EX_TEMPFAIL of sysexits.h.
inline constexpr int kResumableExitCode = 75;

// Runs one rank on `device`. `group` is null for a run in one process, without DDP. `local_ranks` is the number of its
// ranks on this node. Rank 0 reports and saves. Every rank must call it with the same `config`.
//
// If any rank gets SIGTERM or SIGUSR1, all ranks finish the current step (or validation) and save a checkpoint.
// IsResumable() is then true for the status. Other errors name the failed operation.
absl::Status Train(const TrainConfig& config, comm::ProcessGroup* group, int local_ranks, c10::Device device);

// The same with elastic::World, which makes the groups. `options` are for it, without max_ranks and leave_timeout.
// `says`: whether this process says what it does before there is a group. Errors are World's, too.
absl::Status TrainElastic(const TrainConfig& config, const elastic::Options& options, bool says, c10::Device device);

// Whether the run stopped because of a signal, after saving. Also works for the status that launch::Spawn makes of it.
bool IsResumable(const absl::Status& status);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_
