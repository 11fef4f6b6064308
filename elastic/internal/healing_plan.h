// Which ranks give their state to which. Pure.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_HEALING_PLAN_H_
#define LOCKSTEP_ELASTIC_INTERNAL_HEALING_PLAN_H_

#include <stdint.h>

#include <algorithm>
#include <vector>

namespace lockstep::elastic::internal {

// The number of steps of a rank whose state was destroyed while it got another one.
inline constexpr int64_t kNoState = -1;

struct Healing {
  std::vector<int> sources;     // ranks whose states are equal and the newest; empty: no rank has a state
  std::vector<int> receivers;   // ranks that get it
  int64_t newest = 0;           // the steps in it, as Progress::commits counts them
  std::vector<int> nodes = {};  // of each rank, unless the plan is made from commits only
  // Some sources have stepped the parameters of their shards only. The ranks give each other these parameters, and then
  // the sources have the newest state.
  bool spreads = false;

  bool IsReceiver(int rank) const { return std::find(receivers.begin(), receivers.end(), rank) != receivers.end(); }
};

// How much of the step after its newest state a rank has done. Without a ShardedOptimizer always kNothing.
enum class StepPart : int64_t {
  kNothing,
  kGradients,  // it has the gradients, and waited until all ranks have them
  kOwnShards,  // all ranks had the gradients, and it has stepped the parameters of its shards
};

struct Progress {
  // The steps in a rank's state, or kNoState. With a sharded optimizer one more: see RankSteps::Shard().
  int64_t commits = 0;
  StepPart part = StepPart::kNothing;
  int node = 0;
};

// If a rank is ahead of the ranks that have only the gradients, all ranks had them, and these ranks will step their
// shards.
Healing PlanHealing(const std::vector<Progress>& ranks);

// `commits` are the steps in each rank's state, or kNoState. If the newest state has no step, the ranks' states may
// differ: see PlanStart().
Healing PlanHealing(const std::vector<int64_t>& commits);

// When no rank has completed a step: the first rank's state counts, and ranks with the same one keep it. `hashes` are
// of the ranks' states. At least one rank has a state.
Healing PlanStart(const std::vector<int64_t>& commits, const std::vector<uint64_t>& hashes);

// Returns whether a receiver with `commits` has nothing to lose, so that the new state may overwrite its own one piece
// by piece. Any other receiver keeps its state until it has the whole new one, since the sources may die.
bool HealsInPlace(int64_t commits, int64_t newest);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_HEALING_PLAN_H_
