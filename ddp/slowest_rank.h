// Finds the rank for which the others wait.

#ifndef LOCKSTEP_DDP_SLOWEST_RANK_H_
#define LOCKSTEP_DDP_SLOWEST_RANK_H_

#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp {

struct SlowestRank {
  int rank = 0;
  std::string name;       // "rank 1 (host a, pid 123)"
  absl::Duration mean;    // mean time to compute a step
  absl::Duration median;  // of all ranks' means; for an even number of ranks the average of the middle two
  int ranks = 0;          // in the group
  int steps = 0;          // number of steps in its mean

  // How much more time it takes than the median rank: 0.25 for a quarter more.
  double Lag() const;
};

// "rank 1 (host a, pid 123) is the slowest of 4: 84.1 ms a step, 31 % more than the median 64.2 ms (20 steps)".
std::string Describe(const SlowestRank& slowest);

// See below. `steps`: this rank's statistics() of a module that was wrapped over `group`.
absl::StatusOr<SlowestRank> FindSlowestRank(comm::ProcessGroup& group, const std::deque<StepStatistics>& steps,
                                            int last_steps);

// Finds the rank with the longest mean computing time over its last `last_steps` averaged steps (or as many as
// statistics() still has). If several have it, the lowest. The computing time of a step starts when forward has
// received the data of other ranks, and ends at the last gradient of backward. It excludes waits for slower ranks in
// all_reduces and broadcasts, except for waits in the module's own forward (SyncBatchNorm), in hooks that block, and
// for skip_all_reduce_unused_params with find_unused_parameters.
//
//   if (step % 1000 == 0) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const ddp::SlowestRank slowest, ddp::FindSlowestRank(ddp, /*last_steps=*/100));
//     if (slowest.Lag() > 0.2 && group->rank() == 0) LOG(WARNING) << Describe(slowest);
//   }
//
// Every rank must call it between the same two steps. It blocks until all do, and all get the same result. The ranks
// communicate through the group's store, so no collectives are added. InvalidArgument: last_steps is not positive.
// FailedPrecondition: the group may have ranks that are not Lockstep's or, on every rank, a rank has not averaged a
// step yet. Other errors are the group's failure or come from the store.
template <typename Net>
absl::StatusOr<SlowestRank> FindSlowestRank(DistributedDataParallel<Net>& ddp, int last_steps) {
  return FindSlowestRank(internal::ReplicaOf(ddp).group(), ddp.statistics(), last_steps);
}

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_SLOWEST_RANK_H_
