// Ends a rank's work after an error of this rank.

#ifndef LOCKSTEP_EXAMPLES_RANKS_FINISH_H_
#define LOCKSTEP_EXAMPLES_RANKS_FINISH_H_

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// Call it with the outcome of a rank's work while its group still exists. If it is an error, the other ranks are told,
// and fail with "rank 0 (...) failed: <message>" instead of "rank 0 left the group". Cancelled means that the ranks
// agreed to end: it is not sent, since the other ranks may still be saving. Returns `status` with this rank's name
// before its message, unless it is already there.
absl::Status FinishRank(comm::ProcessGroup* group, const absl::Status& status);

// Returns `status` with "rank N: " before its message, unless it is already there.
absl::Status OfRank(const absl::Status& status, int rank);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANKS_FINISH_H_
