// A launch whose nodes find each other.

#ifndef LOCKSTEP_LAUNCH_NODE_RUN_JOB_H_
#define LOCKSTEP_LAUNCH_NODE_RUN_JOB_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/flags/rendezvous_options.h"
#include "lockstep/launch/job/launch_options.h"
#include "lockstep/launch/node/shared_lease.h"

namespace lockstep::launch {

// Joins the rendezvous and runs the ranks of this node. See RunAgent(). The secret is the job's:
// LOCKSTEP_JOB_SECRET or LOCKSTEP_JOB_SECRET_FILE. With etcd, `lease` becomes the lease of this node's agent; it must
// outlive the call.
absl::Status RunJob(const std::vector<std::string>& program, const LaunchOptions& options,
                    const RendezvousOptions& nodes, SharedLease* lease);

// After the process that called RunJob() was killed, and its ranks have ended: the other nodes see at once that this
// one is lost. Does nothing if `lease` is 0, as without etcd. Blocks for 5 s, and for the time to live, at most. The
// error says when the others will see it instead.
absl::Status EndLease(const RendezvousOptions& nodes, int64_t lease);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_RUN_JOB_H_
