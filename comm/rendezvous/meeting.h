// The meeting of a group's ranks on a store, before any backend is made.

#ifndef LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_
#define LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/rendezvous/waiting_notice.h"
#include "lockstep/comm/watch/rank_identity.h"

namespace lockstep::comm {

// What the ranks know of each other once they have met.
struct Met {
  // False where a rank is a Python PyTorch process, which announces nothing: then `ranks` and `facts` are empty, and no
  // check of ours may exchange anything.
  bool all_lockstep = true;
  std::vector<RankIdentity> ranks;
  std::vector<std::string> facts;  // what each rank gave as `facts`
  std::string occasion;            // the same on all ranks, and different whenever ranks meet
};

// Blocks until every rank is there: each Lockstep rank has called this with the same `world_size`, each Python rank has
// begun torch.distributed.init_process_group on the same store, with a backend for CPU tensors ("gloo", or the default
// "cpu:gloo,cuda:nccl": a rank with "nccl" alone writes nothing that could be told from its absence). `facts` is any
// text. What is written for it lies under "lockstep/", where Python ranks do not look.
//
// Fails on every Lockstep rank as soon as one knows why, with the message of the first:
//   AlreadyExists       another process has taken this rank's number; Aborted on the other ranks
//   InvalidArgument     another rank was given another world size; Aborted on the other ranks
//   FailedPrecondition  the store holds this rank of an earlier run, whose process is dead; Aborted on the other ranks
//   PermissionDenied    this rank's job secret is not the others', who have another or none: names them. `store` is a
//                       SealedStore where there is a secret
//   Internal            a key holds what no rank writes: names it
//   Unavailable         the store went away, or a rank of this machine died after it had come
//   DeadlineExceeded    these ranks have not joined by the earliest deadline of all, or the store does not answer
// The lowest rank that has come says to `waiting`, if that is not null, which ranks have not.
//
// Rank 0 fails 300 ms after it knows: the store often goes with it, and the others need it to hear why.
absl::StatusOr<Met> MeetAllRanks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                 const std::string& facts, absl::Time deadline,
                                 const std::shared_ptr<internal::WaitingNotice>& waiting = nullptr);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_
