// A launch whose nodes find each other.

#ifndef LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_RUN_JOB_H_
#define LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_RUN_JOB_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/tools/launch/internal/rendezvous_options.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch::internal {

// Whether the nodes find each other, and so need RunJob() instead of Launch().
bool MeetsOthers(const RendezvousOptions& nodes);

// Joins the rendezvous and runs the ranks of this node. See RunAgent(). The secret is the job's:
// LOCKSTEP_JOB_SECRET or LOCKSTEP_JOB_SECRET_FILE.
absl::Status RunJob(const std::vector<std::string>& program, const LaunchOptions& options,
                    const RendezvousOptions& nodes);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_RUN_JOB_H_
