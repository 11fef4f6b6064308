// The steps of the agent of one node, given the decisions that it sees and the events on its node. Pure: a simulator
// drives them as node/agent.cc and supervisor.cc do.

#ifndef LOCKSTEP_LAUNCH_JOB_AGENT_STEPS_H_
#define LOCKSTEP_LAUNCH_JOB_AGENT_STEPS_H_

#include <stdint.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/node_slots.h"
#include "lockstep/launch/job/node_start.h"

namespace lockstep::launch {

class AgentSteps {
 public:
  // `state` has the node's host, address, port, node rank and number of ranks.
  AgentSteps(std::string id, AgentState state);

  // A decision has arrived. It may be the same again, or skip others, but it is never older than the one before.
  void OnJob(const JobState& job);

  // The agent cannot take part any more: nobody answers at the rendezvous.
  void OnLost(absl::Status status);

  // Records whether the others see this agent. If they do not, the job may go on without it, and its ranks must not.
  void OnReach(bool in_reach) { in_reach_ = in_reach; }

  // One of the ranks that run has failed, and they are being ended.
  void OnFailing();

  // None of the ranks of this start runs any more. `failure.status` is OK if they succeeded, and if they were ended
  // because MustEnd().
  void OnEnd(bool succeeded, Failure failure);

  // Returns whether the node needs another port for rank 0's store at the next start, once no rank runs.
  bool wants_port() const { return wants_port_; }
  void OnPort(int port);

  // The agent itself was told to end: "received signal 15 (SIGTERM)". The ranks are ended, or will be.
  void OnSignal(int signal, std::string reason);

  // Somebody asks that the agent of another node, or this one, leaves.
  void OnDrain(const std::string& agent);

  // Somebody asks that the job has other limits from now on.
  void OnResize(int min_nodes, int max_nodes);

  // Records the states of this node's processes that stay when another one fails, and the port at which rank 0 could
  // listen.
  void OnSlots(const NodeSlots& slots, int port);
  // Returns the leader's decision about them.
  NodeRanks Ranks() const;

  const AgentState& state() const { return state_; }
  // Returns state(), to post it.
  const AgentState& TakePost();
  // Returns whether a decision has changed since then what the others must know.
  bool must_post() const { return must_post_; }

  // The start whose ranks must be started now. It then counts as made.
  std::optional<NodeStart> TakeStart();

  // Returns whether the ranks that run must be ended.
  bool MustEnd() const;

  // Returns the agent's result, once no rank runs and nothing will start.
  std::optional<absl::Status> Result() const;

 private:
  void Follow(const JobState& job);
  void RecordDrain();

  const std::string id_;
  AgentState state_;
  JobState job_;
  bool wants_port_ = true;
  bool in_reach_ = true;
  bool must_post_ = false;
  absl::Status lost_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_AGENT_STEPS_H_
