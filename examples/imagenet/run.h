// Trains an image classifier with elastic::World. To read the example, start with this file and run.cc.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_RUN_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_RUN_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/elastic/world.h"
#include "lockstep/examples/imagenet/config.h"

namespace lockstep::examples::imagenet {

// Runs one rank on `device`. `environment` is its place when it starts, and `options` are for the World, without
// max_ranks and leave_timeout. Rank 0 reports and saves. Every rank must call it with the same `config`. A single rank
// trains without DDP, unless there are virtual ranks.
//
// If any rank gets SIGTERM or SIGUSR1, all ranks finish the current step (or validation) and save a checkpoint.
// IsResumable() is then true for the status. Other errors name the failed operation, and are World's, too.
absl::Status Train(const TrainConfig& config, const elastic::Options& options, const comm::RankEnvironment& environment,
                   c10::Device device);

// Returns whether the run stopped because of a signal, after saving. It also works for the status that launch::Spawn
// makes of the status. The program should then exit with elastic::kResumableExitCode.
bool IsResumable(const absl::Status& status);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_RUN_H_
