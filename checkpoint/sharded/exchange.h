// Ranks that tell each other what they have or that they failed, and go on together or not at all.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_EXCHANGE_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_EXCHANGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint::internal {

// Every rank's `mine`, by rank; where one is an error, on every rank the error of the lowest such rank, with "rank N: "
// before it unless all ranks have the same. Every rank of `group` must call it. Without a group, `mine` alone.
absl::StatusOr<std::vector<std::string>> Exchange(comm::ProcessGroup* group, const absl::StatusOr<std::string>& mine);

// The same for a status.
absl::Status Agree(comm::ProcessGroup* group, const absl::Status& mine);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_EXCHANGE_H_
