// Chooses the devices of a rank.

#ifndef LOCKSTEP_EXAMPLES_RANKS_DEVICES_H_
#define LOCKSTEP_EXAMPLES_RANKS_DEVICES_H_

#include <c10/core/Device.h>

#include <vector>

#include "lockstep/comm/environment/rank_environment.h"

namespace lockstep::examples {

// Returns `count` separate GPUs for each rank of this machine, by local rank, if there are enough; otherwise the CPU,
// `count` times.
std::vector<c10::Device> RankDevices(const comm::RankEnvironment& environment, int count = 1);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANKS_DEVICES_H_
