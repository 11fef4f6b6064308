// The flags of the launch program that say how nodes find each other.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RENDEZVOUS_FLAGS_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RENDEZVOUS_FLAGS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/tools/launch/internal/flag_values.h"
#include "lockstep/tools/launch/internal/rendezvous_options.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch::internal {

// Reads --nnodes, --node_rank, --master_addr, --master_port, --local_addr and --rdzv_* from `given`, by the flags'
// names. With the backend static, or with one node, `options` has the nodes afterwards, and otherwise the result.
// InvalidArgument for what is wrong, missing or does not fit together.
absl::StatusOr<RendezvousOptions> ReadRendezvous(const std::map<std::string, GivenFlag>& given, LaunchOptions* options);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RENDEZVOUS_FLAGS_H_
