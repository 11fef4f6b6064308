// What the launchers of a job of several nodes tell each other about processes that stay when another one fails
// (agent_link): what a node says of its processes, what the job says to it, and what its launcher does then. Knows
// neither processes, sockets nor a clock.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_NODE_RANKS_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_NODE_RANKS_H_

#include <stdint.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/tools/launch/internal/membership.h"

namespace lockstep::launch::internal {

// How one process failed, or the ranks of one node, if one of them failed or they could not start.
struct NodeFailure {
  absl::Status status;       // the sentence about the first cause, with the payloads of a launch's status
  bool not_started = false;  // a program could not be executed
  bool consequence = false;  // another rank's failure caused it
  bool killed = false;       // a signal ended the rank that is named
  int64_t time_ns = 0;       // when the rank failed, on the clock of the process that holds this object
};

// The process of one slot of a node, as its launcher tells the leader.
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
  Membership::Ask ask;    // kReady
  bool done = false;      // it has done its work since, in its last generation
  bool all_done = false;  // and so have all ranks of that generation, as they have agreed
  NodeFailure failure;    // kFailed
  std::string ends_job;   // why the job must end; "": the process has not said that it must
};

// What the ranks of a generation must do about it.
enum class RegroupOrder { kGoOn, kAfterStep, kNow };

// What the job says to the processes of one node.
struct NodeRanks {
  struct Slot {
    int process = 1;        // so many must have been started
    int rank = -1;          // in this generation; -1: this process is not its member
    int local_rank = -1;    // the same
    bool kill = false;      // the process has not left the generation in time
    bool given_up = false;  // it is not started again
  };

  bool kept = false;    // whether the others go on when a process is killed. Otherwise the rest means nothing
  bool formed = false;  // whether they do so when one exits: a generation has formed since they started
  int64_t generation = 0;
  int world_size = 1, local_world_size = 1;
  int node_rank = 0, nnodes = 1;
  std::string master_addr;
  int master_port = 0;
  std::string reason;  // why the generation before ended
  RegroupOrder order = RegroupOrder::kGoOn;
  std::string order_reason;
  int restarts = 0;  // of processes of the job so far
  std::vector<Slot> slots;
};

class NodeSlots {
 public:
  struct Action {
    enum class Kind {
      kGeneration,  // tell the process that it is in the generation of ranks()
      kOrder,       // tell it the order about that generation
      kStart,       // start a process again
      kKill,
      kGiveUp,
    };
    Kind kind;
    int slot;
  };

  // A process has been started in every slot.
  explicit NodeSlots(int slots) : slots_(slots), told_(slots) {}

  // A process says that it stays when another one fails.
  void OnStays();
  // A process has asked for a generation, and has left the one of the number `left`; or it has completed a step.
  void OnReady(int slot, int64_t left, const Membership::Ask& ask);
  void OnProgress(int slot, int64_t step);
  // It has done its work; `all`: and so have all ranks of its generation.
  void OnDone(int slot, bool all);
  // It says that the job must end.
  void OnEndJob(int slot, const std::string& reason);

  // A process has ended; the failure's status is OK if it succeeded. Whether the other ranks go on.
  bool OnEnd(int slot, NodeFailure failure);
  // Whether the ranks stay: one of them has said so, here or on another node.
  bool kept() const { return kept_; }

  // What the job says. It may be the same again, or skip others, but it is never older than the one before.
  void OnRanks(NodeRanks ranks);
  const NodeRanks& ranks() const { return ranks_; }

  // The actions since the last call.
  std::vector<Action> Take() { return std::exchange(actions_, {}); }

  // What to tell the leader. Empty while no process stays: then nobody needs to know.
  const std::vector<SlotState>& slots() const;
  // The last generation in which a process of this node completed a step that none of them had before, and that step.
  int64_t progressed() const { return progressed_; }
  int64_t step() const { return step_; }
  // Whether what to tell has changed since the last call.
  void NoteChange() { changed_ = true; }
  bool TakeChange() { return std::exchange(changed_, false); }

 private:
  // What the process of a slot has been told.
  struct Told {
    int64_t generation = 0;
    RegroupOrder order = RegroupOrder::kGoOn;
    bool killed = false, given_up = false;
  };

  void Obey(int slot, const NodeRanks::Slot& wanted);
  void Act(Action::Kind kind, int slot);

  std::vector<SlotState> slots_;
  std::vector<Told> told_;
  NodeRanks ranks_;
  bool kept_ = false;
  bool changed_ = false;
  int64_t progressed_ = 0;
  int64_t step_ = -1;
  std::vector<Action> actions_;
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_NODE_RANKS_H_
