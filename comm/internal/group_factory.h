#ifndef LOCKSTEP_COMM_INTERNAL_GROUP_FACTORY_H_
#define LOCKSTEP_COMM_INTERNAL_GROUP_FACTORY_H_

#include <cstdint>
#include <functional>
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

// One rank's part of a new group.
struct NewGroupOptions {
  std::string name;
  std::vector<int> world_ranks;                   // the world's numbers of this group's ranks
  int rank = 0;                                   // this rank's number in the new group
  c10::intrusive_ptr<c10d::Store> store;          // for the group's users
  c10::intrusive_ptr<c10d::Store> backend_store;  // for its backends
  int64_t number = 0;                             // counts the groups of these ranks
  bool announce = false;                          // rank 0 of the group prints its backends
};

// Creates the group of all ranks and its sub-groups, from the settings of InitProcessGroup() and the results of the
// ranks' meeting. Owned by a shared_ptr, which every group that it makes holds.
struct GroupFactory : std::enable_shared_from_this<GroupFactory> {
  // Every rank of the new group must call it.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> Make(NewGroupOptions options) const;

  c10::intrusive_ptr<c10d::Store> store;   // the store of the meeting
  c10::intrusive_ptr<c10d::Store> server;  // on the rank that serves `store`; null on the others
  std::string master_addr;
  BackendCandidates candidates;
  UnavailableBackends unavailable;
  std::vector<RankIdentity> ranks;  // of the world; empty if a Python rank is among them
  absl::Duration timeout;
  std::function<absl::Status()> interruption;  // InitOptions::interruption
  absl::Duration stall_after;                  // the same
  std::function<void(const Stall&)> on_stall;  // the same
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
  std::shared_ptr<const GroupFactory> factory;  // null: sub-groups are not supported
  std::vector<int> world_ranks;                 // of the group's ranks
};

// The rank that serves the watch of group `number` of `ranks`, with a connection for each rank. In a large group it is
// not the first rank, which may serve the store with as many, but another one on its host, if there is one.
int WatchHub(const std::vector<RankIdentity>& ranks, int64_t number);

c10::intrusive_ptr<c10d::Store> Prefixed(const c10::intrusive_ptr<c10d::Store>& store, absl::string_view prefix);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_GROUP_FACTORY_H_
