// Which ranks give their state to which. Knows neither tensors nor a group.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_HEALING_PLAN_H_
#define LOCKSTEP_ELASTIC_INTERNAL_HEALING_PLAN_H_

#include <stdint.h>

#include <vector>

namespace lockstep::elastic::internal {

// The number of steps of a rank whose state was destroyed while it got another one.
inline constexpr int64_t kNoState = -1;

struct Healing {
  std::vector<int> sources;    // ranks whose states are equal and the newest; empty: no rank has a state
  std::vector<int> receivers;  // ranks that get it
  int64_t newest = 0;          // the steps in it
};

// `commits` are the steps in each rank's state, or kNoState. If the newest state has no step, the ranks' states may
// differ: see PlanStart().
Healing PlanHealing(const std::vector<int64_t>& commits);

// When no rank has completed a step: the first rank's state counts, and ranks with the same one keep it. `hashes` are of
// the ranks' states. At least one rank has a state.
Healing PlanStart(const std::vector<int64_t>& commits, const std::vector<uint64_t>& hashes);

// Whether a receiver with `commits` has nothing to lose, so that the new state may overwrite its own one piece by piece.
// Any other receiver keeps its state until it has the whole new one, since the sources may die.
bool HealsInPlace(int64_t commits, int64_t newest);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_HEALING_PLAN_H_
