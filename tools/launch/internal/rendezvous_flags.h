// The flags of the launch program that say how nodes find each other.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RENDEZVOUS_FLAGS_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RENDEZVOUS_FLAGS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/tools/launch/internal/flag_values.h"
#include "lockstep/tools/launch/internal/rendezvous_options.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch::internal {

// Reads --nnodes, --node_rank, --master_addr, --master_port, --local_addr and --rdzv_* from `given`, by the flags'
// names. If the result does not meet others, `options` has the nodes afterwards, and otherwise the result. `notices`
// gets a line about each flag that is not used, or means something else than to torchrun.
//
// One node meets others too, if its backend is not static and it has an endpoint: then a second launcher waits for its
// place. It does not with the switch standalone, or if the endpoint's port is 0, where nobody finds it.
//
// InvalidArgument for what is wrong, missing or does not fit together.
absl::StatusOr<RendezvousOptions> ReadRendezvous(const std::map<std::string, GivenFlag>& given, LaunchOptions* options,
                                                 std::vector<std::string>* notices);

// The names that --rdzv_conf takes, also those without effect.
std::vector<std::string> RendezvousParameters();

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RENDEZVOUS_FLAGS_H_
