// What ranks tell each other of an operation that each of them may fail at, so that all know how it ended for all.

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_AGREEMENT_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint {

// Each is called by every rank of `group`, blocks until all have come, and returns the group's own error where one
// cannot. Without a group (nullptr) the caller is the only rank. Errors of a rank are told with its name: "rank 1 (host
// a, pid 123): ...".

// What each rank gave, by rank.
absl::StatusOr<std::vector<absl::StatusOr<std::string>>> GatherOutcomes(comm::ProcessGroup* group,
                                                                        const absl::StatusOr<std::string>& own);

// What each rank gave, or the same error on every rank where one of them gave an error: the lowest rank's, and how many
// others have one.
absl::StatusOr<std::vector<std::string>> GatherAgreed(comm::ProcessGroup* group,
                                                      const absl::StatusOr<std::string>& own);

// The same of nothing but a status.
absl::Status Agree(comm::ProcessGroup* group, const absl::Status& own);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_AGREEMENT_H_
