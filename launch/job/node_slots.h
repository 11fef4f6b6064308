// The processes of a node that stay when another one fails (launch/link): what the node's launcher says of them to the
// leader, and what it does about the leader's plan. Pure.

#ifndef LOCKSTEP_LAUNCH_JOB_NODE_SLOTS_H_
#define LOCKSTEP_LAUNCH_JOB_NODE_SLOTS_H_

#include <stdint.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/job/failure.h"
#include "lockstep/launch/job/rank_plan.h"
#include "lockstep/launch/link/rank_generation.h"

namespace lockstep::launch {

class NodeSlots {
 public:
  struct Action {
    enum class Kind {
      kGeneration,  // tell the process that it is in the generation of the plan
      kOrder,       // tell it the order about that generation
      kStart,       // start a process again
      kKill,
      kGiveUp,  // the slot gets no process any more
    };
    Kind kind;
    int slot;
  };

  // A process has been started in every slot.
  explicit NodeSlots(int slots) : slots_(slots), told_(slots) {}

  // A process says that it stays when another one fails.
  void OnStays();
  // A process has asked for a generation, and has left the one of the number `left`.
  void OnReady(int slot, int64_t left, const JoinOptions& ask);
  // It has completed a step.
  void OnProgress(int slot, int64_t step);
  // It has done its work; `all`: and so have all ranks of its generation.
  void OnDone(int slot, bool all);
  void OnUnfit(int slot);
  // It says that the job must end.
  void OnEndJob(int slot, const std::string& reason);

  // A process has ended; the failure's status is OK if it succeeded. Whether the other ranks go on.
  bool OnEnd(int slot, Failure failure);
  // Returns whether the ranks stay: one of them has said so, here or on another node.
  bool stays() const { return stays_; }

  // Records the leader's decision. It may be the same again, or skip others, but it is never older than the one before.
  void OnRanks(NodeRanks ranks);
  const RankPlan& plan() const { return ranks_.plan; }
  // Returns the plan's entry for the process of a slot.
  const RankPlan::Slot& place(int slot) const;
  RankGeneration GenerationOf(int slot) const;
  // Returns whether this node needs another port for the next rank 0 than this one.
  bool has_used(int port) const { return ranks_.has_used(port); }
  // Returns whether the process of a slot is a member of the last generation, and has neither left it nor done its
  // work.
  bool IsMember(int slot) const;

  // The actions since the last call.
  std::vector<Action> Take() { return std::exchange(actions_, {}); }

  // Returns the texts for the leader. Empty while no process stays: then nobody needs to know.
  const std::vector<SlotState>& slots() const;
  // The last generation in which a process of this node completed a step that none of them had before, and that step.
  int64_t progressed() const { return progressed_; }
  int64_t step() const { return step_; }
  // RecordChange() records that the texts for the leader have changed. TakeChange() returns whether they have since the
  // last call.
  void RecordChange() { changed_ = true; }
  bool TakeChange() { return std::exchange(changed_, false); }

 private:
  // The last text that the process of a slot was sent.
  struct Told {
    int64_t generation = 0;
    RegroupOrder order = RegroupOrder::kGoOn;
    bool killed = false, given_up = false;
  };

  void Apply(int slot);
  void ApplyToMember(int slot);

  std::vector<SlotState> slots_;
  std::vector<Told> told_;
  NodeRanks ranks_;
  bool stays_ = false;
  bool changed_ = false;
  int64_t progressed_ = 0;
  int64_t step_ = -1;
  std::vector<Action> actions_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_NODE_SLOTS_H_
