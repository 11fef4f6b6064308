// Who would be the ranks of the next generation. Part of Membership, and as pure.

#ifndef LOCKSTEP_LAUNCH_JOB_NEXT_GENERATION_H_
#define LOCKSTEP_LAUNCH_JOB_NEXT_GENERATION_H_

#include <stddef.h>

#include <string>
#include <vector>

#include "lockstep/launch/job/rank_plan.h"
#include "lockstep/launch/link/rank_generation.h"

namespace lockstep::launch {

// Both are empty while processes start that the first generation waits for.
struct NextGeneration {
  std::vector<int> slots;  // in the order of the ranks
  std::string missing;     // "1 of at least 2 ranks is there"; "": they are enough
};

// Forms the next generation of the processes that are ready. The first generation has a rank in every place. The
// members of the generation before keep their order, and new ones follow. Its nodes are at least `least_nodes`, with
// those whose ranks have done their work or are beyond the most. `asks`: the last request of the process of each slot.
NextGeneration NextOf(const RankPlan& plan, const std::vector<JoinOptions>& asks, int least_nodes);

// The most ranks for which these processes have asked, and the least.
size_t MostRanks(const std::vector<JoinOptions>& asks, const std::vector<int>& slots);
int LeastRanks(const std::vector<JoinOptions>& asks, const std::vector<int>& slots);

// A local rank for the process of this slot: its place on its node, or the lowest one that no process of the node has.
int FreeLocalRank(const RankPlan& plan, int slot);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_NEXT_GENERATION_H_
