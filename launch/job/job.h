// The texts that the agents of a job exchange in a rendezvous. An agent is the launch process of one node.

#ifndef LOCKSTEP_LAUNCH_JOB_JOB_H_
#define LOCKSTEP_LAUNCH_JOB_JOB_H_

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/launch/job/failure.h"
#include "lockstep/launch/job/rank_plan.h"

namespace lockstep::launch {

// How many nodes a job has. The number orders the changes; 0: as the flags of the launcher that leads say.
struct NodeLimits {
  int64_t number = 0;
  int min_nodes = 0;
  int max_nodes = 0;
};

// "2", or the least and the most with `between` between them: "2 to 4".
std::string RangeText(const NodeLimits& limits, absl::string_view between);

// A launcher's flags about the whole job: "--nnodes=2:4", "--max-restarts=3". Each launcher has the same ones in the
// same order, and the leader's values count.
using JobFlags = std::vector<std::string>;

// The program that a launcher starts, by which launchers of another job are known. Nothing is compared that is empty
// here.
struct JobProgram {
  std::vector<std::string> words;  // the program and its arguments
  size_t script = 0;  // which of them is the first argument that is a file: its folder does not count; 0: none
  std::string program_hash, script_hash;  // SHA-256 of these files

  bool operator==(const JobProgram& other) const {
    return words == other.words && script == other.script && program_hash == other.program_hash &&
           script_hash == other.script_hash;
  }
};

// An agent's text about itself and its node.
struct AgentState {
  enum class Phase {
    kReady,      // no rank runs: it can start ranks
    kRunning,    // the ranks of `start` run
    kFailing,    // one of them has failed, and the others are being ended
    kSucceeded,  // all of them have ended with success
    kLeaving,    // no rank runs, and it will not start any
  };

  std::string host;     // for messages
  std::string address;  // at which other nodes reach this one
  int port = 0;         // on this node, for rank 0's store, if this becomes node 0
  int node_rank = -1;   // the node rank that it must have; -1: any
  int ranks = 1;        // number of ranks on the node
  int spares = 0;       // number of processes besides
  JobFlags flags;
  JobProgram program;
  Phase phase = Phase::kReady;
  int64_t start = 0;    // the last start whose ranks it has started, or that ended before it could; 0: none
  int64_t entry = 0;    // the last entry of a member with which it has started its ranks, or that ended before it could
  Failure failure;      // of that start; its status is OK if no rank failed
  std::string leaving;  // why it leaves: "received signal 15 (SIGTERM)"
  int signal = 0;       // the signal that it received, if it leaves because of one
  // The agents that this one asks to leave, as somebody told it. They have no later life, so the list only grows.
  std::vector<std::string> drains;
  NodeLimits resize;  // the limits that it asks for, as somebody told it
  // The processes that ask for generations (launch/link), of the ranks that run or have run last: see NodeSlots.
  std::vector<SlotState> slots;
  int link_port = 0;  // at which a socket listens for rank 0 of the next of these generations
  int64_t progressed = 0, step = -1;
};

using Agents = std::map<std::string, AgentState>;  // by id

// Null if this agent is not there.
const AgentState* FindAgent(const Agents& agents, const std::string& id);

// Returns whether ranks run on this node.
bool Runs(const AgentState& agent);

// Returns whether a rank of `start` has failed on this node.
bool HasFailed(const AgentState& agent, int64_t start);

// One node of a start. Its node rank is its index.
struct Member {
  std::string agent;  // the agent's id in the rendezvous
  int64_t entry = 0;  // the number of the node's entry into the job; a node starts its ranks once for each entry
  std::string host;
  std::string address;
  int port = 0;
  int ranks = 1;
  int spares = 0;
};

// An agent that has left the job.
struct Leaver {
  std::string agent;
  std::string host;
  std::string reason;  // as AgentState::leaving
  int signal = 0;
};

// An agent of another job.
struct Stranger {
  std::string agent;
  std::string why;  // for people
};

// The decisions of the leading agent. A start is one of all ranks of the job. If its ranks stay when another one fails,
// they form one generation after another (RankPlan), and nodes are lost, leave and come while it runs.
struct JobState {
  enum class Phase {
    kForming,  // agents gather for the next start
    kRunning,  // the members run the ranks of `start`
    kEnding,   // the members end them
    kDone,     // nothing starts any more
  };

  Phase phase = Phase::kForming;
  int64_t start = 0;                 // the number of starts so far
  int64_t entries = 0;               // the number of entries of nodes so far
  std::vector<Member> members;       // of that start
  std::vector<Leaver> left;          // who has left since; the leader has seen it, so they may vanish
  std::vector<std::string> drained;  // the agents that somebody has asked to leave, since the job began
  NodeLimits limits;
  int restarts = 0;                 // of all ranks, or of one that stays alive, because one had failed
  std::string reason;               // why the start ends, or the one before ended, for people; "" for the first one
  std::vector<std::string> lost;    // the agents because of whose loss it ended; empty while one runs
  JobProgram program;               // of the agent that formed the first start, or forms it
  std::vector<Stranger> strangers;  // who is refused, and is there or was the last one
  std::string flags;                // which launchers' flags differ, for people
  RankPlan ranks;                   // of processes that stay when another one fails
  absl::Status result;              // while kDone: what every agent returns, with the payloads of a launch's status
};

// Null if the agent is not refused.
const Stranger* FindStranger(const JobState& state, const std::string& agent);

bool HasLeft(const JobState& state, const std::string& agent);

// Returns whether somebody has asked this agent to leave.
bool IsDrained(const JobState& state, const std::string& agent);

// The node rank of an agent; -1: it is not a member.
int NodeRankOf(const JobState& state, const std::string& agent);
inline bool IsMember(const JobState& state, const std::string& agent) { return NodeRankOf(state, agent) >= 0; }

// "1 node", "2 nodes".
std::string NodesText(int nodes);

// "host a", "hosts a and b", "hosts a, b, c and 5 more".
std::string HostsText(const std::vector<std::string>& hosts);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_JOB_H_
