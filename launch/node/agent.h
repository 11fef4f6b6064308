// Runs the ranks of one node of a job whose nodes find each other by a rendezvous, and start, end and restart their
// ranks together.

#ifndef LOCKSTEP_LAUNCH_NODE_AGENT_H_
#define LOCKSTEP_LAUNCH_NODE_AGENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/launch_options.h"
#include "lockstep/launch/rendezvous/rendezvous.h"

namespace lockstep::launch {

struct AgentOptions {
  std::string id;       // of this agent in the rendezvous; no other process, earlier or later, has it
  std::string where;    // the rendezvous, for messages: "10.0.0.1:29400"
  std::string address;  // at which the other nodes reach this one
  int node_rank = -1;   // -1: any
  std::string warning;  // told by the node that leads, at its first start; "" if there is none
  JobLimits limits;     // the same on all nodes
};

// Blocks until the job is over, and returns the same status on every node: OK if all ranks of the job exited with 0. It
// does not use the numbers of nodes, the master's address and port, and the number of restarts in `options`. Errors: as
// of Launch(), and Unavailable if a node or the rendezvous is lost, DeadlineExceeded if too few nodes come, Cancelled
// if a node leaves and the others do not suffice.
absl::Status RunAgent(const std::vector<std::string>& argv, const LaunchOptions& options, const AgentOptions& agent,
                      std::unique_ptr<Rendezvous> rendezvous);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_AGENT_H_
