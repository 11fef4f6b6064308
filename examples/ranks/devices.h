// Which devices a rank computes on.

#ifndef LOCKSTEP_EXAMPLES_RANKS_DEVICES_H_
#define LOCKSTEP_EXAMPLES_RANKS_DEVICES_H_

#include <c10/core/Device.h>

#include <vector>

#include "lockstep/comm/rank_environment.h"

namespace lockstep::examples {

// `count` GPUs of its own for each rank of this machine, told apart by their local ranks, where it has so many; else
// the CPU, `count` times.
std::vector<c10::Device> RankDevices(const comm::RankEnvironment& environment, int count = 1);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANKS_DEVICES_H_
