// The meeting of a group's ranks on a store, before any backend is created.

#ifndef LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_
#define LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/comm/rendezvous/waiting_notice.h"

namespace lockstep::comm {

// The ranks' knowledge of each other after the meeting.
struct Met {
  // False if a rank is a Python PyTorch process, which announces nothing. Then `ranks` and `facts` are empty, and
  // Lockstep must not exchange messages to check anything.
  bool all_lockstep = true;
  std::vector<RankIdentity> ranks;
  std::vector<std::string> facts;  // the argument `facts` of each rank
  std::string occasion;            // the same on all ranks, and different for each meeting
};

// Blocks until every rank has arrived. A Lockstep rank arrives by calling this with the same `world_size`. A Python
// rank arrives by calling torch.distributed.init_process_group on the same store, with a backend for CPU tensors:
// "gloo", or the default "cpu:gloo,cuda:nccl". (A Python rank with "nccl" alone writes nothing and cannot be detected.)
// `facts` is any text. All keys start with "lockstep/", where Python ranks do not look.
//
// If one rank knows a reason to fail, every Lockstep rank fails at once with its message:
//   AlreadyExists       another process has taken this rank's number; Aborted on the other ranks
//   InvalidArgument     another rank has another world size; Aborted on the other ranks
//   FailedPrecondition  the store holds this rank of an earlier run, whose process is dead; Aborted on the other ranks
//   PermissionDenied    the other ranks have another job secret than this rank, or none; the message names them. With a
//                       secret, `store` is a SealedStore
//   Internal            a key, which the message names, has a value that no rank writes
//   Unavailable         the store has ended, or a rank of this machine died after it had arrived
//   DeadlineExceeded    ranks have not arrived by the earliest deadline of all ranks, or the store does not answer
//
// The first rank to arrive is the collector: it reads all ranks' announcements, finds Python ranks, and publishes the
// list of all ranks, or the first failure. It sends three requests for each 128 ranks, and four for each 100 ms that it
// waits; if nobody comes meanwhile, one or two for each missing rank. It also reports the missing ranks to `waiting`,
// if that is not null. Every other rank sends five requests, whatever the world size, and three for each second that it
// waits.
//
// Rank 0 returns an error 300 ms late: the store often ends with it, and the others need the store to read the reason.
// The first error of `interruption`, which is asked at least every 100 ms unless it is null, is returned at once.
absl::StatusOr<Met> MeetAllRanks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                 const std::string& facts, absl::Time deadline,
                                 const std::shared_ptr<WaitingNotice>& waiting = nullptr,
                                 const std::function<absl::Status()>& interruption = nullptr);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RENDEZVOUS_MEETING_H_
