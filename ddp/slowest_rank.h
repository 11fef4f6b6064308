// Which rank the others wait for.

#ifndef LOCKSTEP_DDP_SLOWEST_RANK_H_
#define LOCKSTEP_DDP_SLOWEST_RANK_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::ddp {

struct SlowestRank {
  int rank = 0;
  std::string name;       // "rank 1 (host a, pid 123)"
  absl::Duration mean;    // its time to compute a step
  absl::Duration median;  // of all ranks' means; of an even number of them the average of the middle two
  int ranks = 0;          // in the group
  int steps = 0;          // of which its mean is

  // How much longer it takes than the median rank: 0.25 for a quarter more.
  double Lag() const;
};

// "rank 1 (host a, pid 123) is the slowest of 4: 84.1 ms a step, 31 % more than the median 64.2 ms (20 steps)".
std::string Describe(const SlowestRank& slowest);

// The rank whose mean time to compute was the longest over its last `last_steps` averaged steps (as many of them as
// statistics() still has), the lowest of several. A step's time to compute is that from where forward has what it gets
// from other ranks to the last gradient of backward: the waits for slower ranks, in all_reduces and broadcasts, are not
// in it, except those of the module's own forward (SyncBatchNorm's), of hooks that block, and of
// skip_all_reduce_unused_params with find_unused_parameters.
//
//   if (step % 1000 == 0) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const ddp::SlowestRank slowest, ddp::FindSlowestRank(ddp, /*last_steps=*/100));
//     if (slowest.Lag() > 0.2 && group->rank() == 0) LOG(WARNING) << Describe(slowest);
//   }
//
// Every rank must call it, between the same two steps; it blocks until they do, and all get the same answer. The ranks
// tell each other through the group's store, so nothing comes between the collectives. InvalidArgument: last_steps is
// not positive. FailedPrecondition: there may be ranks in the group that are not Lockstep's; or, on every rank, a rank
// has averaged no step yet. Otherwise the group's failure, or the store's error.
absl::StatusOr<SlowestRank> FindSlowestRank(internal::Replica& replica, int last_steps);

template <typename Net>
absl::StatusOr<SlowestRank> FindSlowestRank(DistributedDataParallel<Net>& ddp, int last_steps) {
  return FindSlowestRank(internal::ReplicaOf(ddp), last_steps);
}

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_SLOWEST_RANK_H_
