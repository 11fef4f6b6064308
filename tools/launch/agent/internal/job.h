// What the agents of a job tell each other: the texts of a rendezvous. An agent is the launch process of one node.

#ifndef LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_JOB_H_
#define LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_JOB_H_

#include <stdint.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::launch::internal {

// How the ranks of one node ended, if one of them failed or they could not start.
struct NodeFailure {
  absl::Status status;       // the sentence about the node's first cause, with the payloads of a launch's status
  bool not_started = false;  // a program could not be executed
  bool consequence = false;  // another rank's failure caused it
  bool killed = false;       // a signal ended the rank that is named
  int64_t time_ns = 0;       // when the rank failed, on the clock of the process that holds this object
};

// How many nodes a job has. The number orders the changes; 0: what the launchers' flags say.
struct NodeLimits {
  int64_t number = 0;
  int min_nodes = 0;
  int max_nodes = 0;
};

// What an agent says about itself and its node.
struct AgentState {
  enum class Phase {
    kReady,      // no rank runs: it can start a generation
    kRunning,    // the ranks of `generation` run
    kFailing,    // one of them has failed, and the others are being ended
    kSucceeded,  // all of them have ended with success
    kLeaving,    // no rank runs, and it will not start any
  };

  std::string host;     // for messages
  std::string address;  // at which other nodes reach this one
  int port = 0;         // on this node, for rank 0's store, if this becomes node 0
  int node_rank = -1;   // the node rank that it must have; -1: any
  int ranks = 1;        // number of ranks on the node
  Phase phase = Phase::kReady;
  int64_t generation = 0;  // the last one whose ranks it started, or that ended before it did; 0: none
  NodeFailure failure;     // of that generation; its status is OK if no rank failed
  std::string leaving;     // why it leaves: "received signal 15 (SIGTERM)"
  int signal = 0;          // the signal that it received, if it leaves because of one
  // The agents that this one asks to leave, as somebody told it. They have no later life, so the list only grows.
  std::vector<std::string> drains;
  NodeLimits resize;  // the limits that it asks for, as somebody told it
};

// One node of a generation. Its node rank is its index.
struct Member {
  std::string agent;  // the agent's id in the rendezvous
  std::string host;
  std::string address;
  int port = 0;
  int ranks = 1;
};

// What the leading agent has decided. A generation is a start of all ranks of the job.
struct JobState {
  enum class Phase {
    kForming,  // agents gather for the next generation
    kRunning,  // the members run the ranks of `generation`
    kEnding,   // the members end them
    kDone,     // nothing starts any more
  };

  Phase phase = Phase::kForming;
  int64_t generation = 0;            // the number of generations so far
  std::vector<Member> members;       // of that generation
  std::vector<std::string> left;     // the agents that have left since; the leader has seen it, so they may vanish
  std::vector<std::string> drained;  // the agents that somebody has asked to leave, since the job began
  NodeLimits limits;
  int restarts = 0;     // the generations that started because one before had failed
  std::string reason;   // why the generation ends, or the one before ended, for people; "" for the first one
  absl::Status result;  // while kDone: what every agent returns, with the payloads of a launch's status
};

// One line of JSON. Times become ages, since the nodes' clocks differ: `now_ns` is MonotonicNanos() at the sender, and
// `received_ns` at the receiver.
std::string EncodeAgent(const AgentState& state, int64_t now_ns);
std::string EncodeJob(const JobState& state);

// InvalidArgument for a text that the functions above did not write.
absl::StatusOr<AgentState> DecodeAgent(absl::string_view text, int64_t received_ns);
absl::StatusOr<JobState> DecodeJob(absl::string_view text);

bool Contains(const std::vector<std::string>& agents, const std::string& id);

// "host a", "hosts a and b", "hosts a, b, c and 5 more".
std::string HostsText(const std::vector<std::string>& hosts);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_JOB_H_
