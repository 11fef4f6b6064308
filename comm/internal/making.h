#ifndef LOCKSTEP_COMM_INTERNAL_MAKING_H_
#define LOCKSTEP_COMM_INTERNAL_MAKING_H_

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/internal/group_state.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm::internal {

// The results of InitProcessGroup() that are also needed to create sub-groups.
struct Making {
  c10::intrusive_ptr<c10d::Store> store;   // the store of the meeting
  c10::intrusive_ptr<c10d::Store> server;  // behind it, on the rank that serves it; else null
  std::string master_addr;
  BackendCandidates candidates;
  UnavailableBackends unavailable;
  std::vector<RankIdentity> ranks;  // of the world; empty if a Python rank is among them
  absl::Duration timeout;
  bool info = false;
  bool detail = false;
  bool report_uncaught_exceptions = false;
};

// The parts of a ProcessGroup.
struct GroupParts {
  std::shared_ptr<GroupState> state;
  c10::intrusive_ptr<c10d::Store> master;
  c10::intrusive_ptr<c10d::Store> store;
  BackendMap backends;
  bool abortable = false;  // whether the backends fulfil the guarantees of comm/backend.h for abort()
  std::shared_ptr<const Making> making;
  std::vector<int> world_ranks;  // of the group's ranks
};

// One rank's part of a new group.
struct NewGroupOptions {
  std::string name;
  std::vector<int> world_ranks;                   // this group's ranks, counted in the world
  int rank = 0;                                   // among them
  c10::intrusive_ptr<c10d::Store> store;          // for the group's users
  c10::intrusive_ptr<c10d::Store> backend_store;  // for its backends
  bool announce = false;                          // its rank 0 prints which backends it has
};

c10::intrusive_ptr<c10d::Store> Prefixed(const c10::intrusive_ptr<c10d::Store>& store, absl::string_view prefix);

// Every rank of the new group must call it.
absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeGroup(std::shared_ptr<const Making> making, NewGroupOptions options);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_MAKING_H_
