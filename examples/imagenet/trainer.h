// Trains an image classifier with elastic::World. To read the example, start with this file and
// trainer.cc.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/elastic/world.h"
#include "lockstep/examples/imagenet/config.h"

namespace lockstep::examples::imagenet {

// The exit code of a program that was asked to stop and has saved its state: EX_TEMPFAIL of sysexits.h.
inline constexpr int kResumableExitCode = 75;

// Runs one rank on `device`. `environment` is its place when it starts, and `options` are for the World, without max_ranks
// and leave_timeout. Rank 0 reports and saves. Every rank must call it with the same `config`. A single rank trains
// without DDP, unless there are virtual ranks.
//
// If any rank gets SIGTERM or SIGUSR1, all ranks finish the current step (or validation) and save a checkpoint.
// IsResumable() is then true for the status. Other errors name the failed operation, and are World's, too.
absl::Status Train(const TrainConfig& config, const elastic::Options& options, const comm::RankEnvironment& environment,
                   c10::Device device);

// Whether the run stopped because of a signal, after saving. Also works for the status that launch::Spawn makes of it.
bool IsResumable(const absl::Status& status);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_TRAINER_H_
