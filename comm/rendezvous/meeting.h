// The meeting of a group's ranks on a store, before any backend is made.

#ifndef LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_
#define LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/watch/rank_identity.h"

namespace lockstep::comm {

// What the ranks know of each other once they have met.
struct Met {
  // False where a rank is a Python PyTorch process, which announces nothing: then `ranks` and `facts` are empty, and no
  // check of ours may exchange anything.
  bool all_lockstep = true;
  std::vector<RankIdentity> ranks;
  std::vector<std::string> facts;  // what each rank gave as `facts`
};

// Blocks until every rank is there: each Lockstep rank has called this with the same `world_size`, each Python rank has
// begun torch.distributed.init_process_group("gloo" or "nccl") on the same store. `facts` is any text.
// AlreadyExists if another process has taken this rank's number, InvalidArgument if another rank was given another
// world size (both end the waiting of all ranks), Unavailable if the store goes away, DeadlineExceeded naming the ranks
// that are missing.
absl::StatusOr<Met> MeetAllRanks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                 const std::string& facts, absl::Time deadline);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_
