// Which two ranks keep the optimizer's state of which parameter. Pure.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_SHARD_PLAN_H_
#define LOCKSTEP_ELASTIC_INTERNAL_SHARD_PLAN_H_

#include <stdint.h>

#include <vector>

namespace lockstep::elastic::internal {

// The ranks that step one parameter, and so have its state. They compute the same bits.
struct Keepers {
  int owner = 0;   // gives the parameter to the other ranks after a step
  int second = 0;  // has the state too if the owner dies. With one rank it is the owner

  bool Has(int rank) const { return owner == rank || second == rank; }
};

// The keepers of parameters of these sizes. `have[p]` are the ranks that have the state of parameter p, at least one,
// in ascending order. `nodes[rank]` is the rank's node. Ranks keep what they have, as far as their shares remain about
// equal. The same on every rank.
//
// The keepers of a parameter are on two nodes, unless a node has more than three quarters of the ranks. For that a rank
// gets up to 4 / ranks of all elements, if a node has more than half of the ranks. Otherwise no rank gets more than
// 2 / ranks, and one parameter, since parameters are not divided.
std::vector<Keepers> PlanShards(const std::vector<int64_t>& sizes, const std::vector<std::vector<int>>& have,
                                const std::vector<int>& nodes);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_SHARD_PLAN_H_
