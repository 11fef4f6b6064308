// Which processes of a job train together, if they stay when another one fails (launch/link): what the launchers of all
// nodes say of their processes, and what the leader has decided about them. Pure data.

#ifndef LOCKSTEP_LAUNCH_JOB_RANK_PLAN_H_
#define LOCKSTEP_LAUNCH_JOB_RANK_PLAN_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/job/cut_hosts.h"
#include "lockstep/launch/job/failure.h"
#include "lockstep/launch/link/rank_generation.h"

namespace lockstep::launch {

// The process of one slot of a node, as its launcher tells the leader. A slot is a place for one process; a process
// that is started again gets the slot of the one before.
struct SlotState {
  enum class Phase {
    kStarting,  // it has not asked for a generation yet
    kReady,     // it has asked: it is in a generation that formed since, or waits for one
    kFailed,
    kSucceeded,
  };

  int process = 1;  // the number of processes that have been started in this slot
  Phase phase = Phase::kStarting;
  int64_t left = 0;       // kReady: the generation that it has left; 0: none
  JoinOptions ask;        // kReady; the timeout is its own
  bool done = false;      // it has asked, and has done its work in the generation that formed then
  bool all_done = false;  // and so have all ranks of that generation, as they have agreed
  Failure failure;        // kFailed
  bool unfit = false;     // it cannot work with the others, nor could another process in its place
  std::string ends_job;   // why the job must end; "": the process has not said that it must
};

// The order for the members of a generation.
enum class RegroupOrder { kGoOn, kAfterStep, kNow };

// All that the nodes and another leader need to know. Times are not in it: they begin anew. JobState::start numbers
// the starts of all ranks, and `generation` the generations of ranks.
struct RankPlan {
  // The state of the process of a slot.
  enum class State {
    kStarting,  // it has not asked for a generation yet
    kReady,     // it waits for one
    kMember,    // of the last generation
    kDone,      // it was a member, has done its work, and has not ended
    kAwaited,   // it has failed, and another process will be started in its place
    kFinished,  // it has ended, and nothing of its work is left
    kGivenUp,   // it has failed, and no other process is started
    kLost,      // its node is gone
  };
  enum class Phase { kForming, kRunning, kRegrouping };

  struct Node {
    std::string agent;
    std::string host;
    int64_t entry = 0;
    int ranks = 1;        // a generation has so many of this node at most
    int first = 0;        // the first of its slots, which are neighbours
    int slots = 1;        // the number of them
    bool leaves = false;  // it is to leave, once it has no member
    bool gone = false;    // lost, or left
    int used_port = 0;    // the last one of this node at which a rank 0 listened
  };

  struct Slot {
    State state = State::kStarting;
    int rank = -1;          // in the last generation, if this process was its member
    int local_rank = -1;    // which this process has for as long as it lives; -1: it was no member yet
    bool owes = false;      // its process was in the last generation, and failed before it had finished
    int failed_starts = 0;  // processes in succession that failed before they were ready
    int process = 1;        // the number of processes that must have been started in this slot
    int node = 0;
    bool late = false;  // the process has not left the last generation in time, and is killed
  };

  int64_t start = 0;  // the JobState::start whose processes these are
  std::vector<Node> nodes;
  std::vector<Slot> slots;
  Phase phase = Phase::kForming;
  bool stays = false;   // a process has said so: the others go on when one is killed
  bool formed = false;  // a generation has formed: they also do so when one exits
  int restarts = 0;     // of processes, and of all ranks before
  int64_t step = -1;    // a completed one, the highest that was posted: a node posts one in each generation
  int barren = 0;       // broken generations in succession without a step

  // The last generation.
  int64_t generation = 0;
  std::vector<int> members;  // slots in the order of the ranks
  std::string master_addr;
  int master_port = 0;
  std::string reason;                  // why the generation before ended
  std::optional<StepFailure> failure;  // the same, if a rank failed by itself

  // The generation's order and its failures until now.
  RegroupOrder order = RegroupOrder::kGoOn;
  std::string order_reason;
  std::vector<Failure> causes;       // the first failures of members
  int failure_count = 0;             // of members
  std::optional<StepFailure> error;  // the first that a member has named when it left
  std::string failed_start;          // how the last process failed that had not been ready
  bool progressed = false;           // a step was completed
  int finished_members = 0;          // that have done their work
  bool agreed = false;               // a member has said that the work of all members is done
  bool resumes = false;              // one of these members has asked for more to do
  bool complete = false;             // nothing is left to do: a failure changes nothing

  std::string awaited;                // what the ranks wait for, if others must come before a generation can form
  CutHosts::Memory cuts;              // hosts that do not reach each other
  absl::Status verdict;               // why the ranks cannot go on
  std::optional<std::string> ending;  // if that is about a rank that has failed: what the verdict adds to its failure
  absl::Status late;                  // how a rank failed by itself since the last generation began

  // The node with this entry; -1: there is none. Entries are never used again.
  int NodeOf(int64_t entry) const;
  // The slots in this state.
  std::vector<int> SlotsIn(State state) const;
  // Returns whether a process is to start in this slot, whose state is kAwaited.
  bool MayStart(const Slot& slot) const;
  // Returns whether a process that is to take part has not said yet that it is ready.
  bool SomebodyComes() const;
  // Returns whether the process of this slot belongs to the last generation, and has not ended.
  bool IsOfLastGeneration(const Slot& slot) const;
  int CountOnNode(const std::vector<int>& slots, int node) const;
  int NodesOf(const std::vector<int>& slots) const;
  // Returns whether a process of this node is a member, or has been one and has not ended since its work is done.
  bool HasMembers(int node) const;
  // The failures of members, and why the last generation ends: by them, or else as the order says.
  std::string CausesText() const;
  std::string Reason() const;
  // The failures of members in the last generation of a job that is complete; "" if there is none.
  std::string LateFailures() const { return complete ? CausesText() : ""; }
  // The generation, as its launcher tells the process of this slot. Nodes are numbered in the order of their first
  // ranks.
  RankGeneration GenerationOf(int slot) const;
};

// The plan as one node has it.
struct NodeRanks {
  RankPlan plan;
  int node = -1;  // its place in plan.nodes; -1: no process of the job has said that it stays

  bool stays() const { return node >= 0; }
  // Returns whether a rank 0 of this node has listened at the port, or might have: the node may have missed its plan.
  bool has_used(int port) const { return port != 0 && stays() && plan.nodes[node].used_port == port; }
  const RankPlan::Slot& place(int slot) const { return plan.slots[plan.nodes[node].first + slot]; }
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_RANK_PLAN_H_
