// How a rank ends its work when something of its own went wrong.

#ifndef LOCKSTEP_EXAMPLES_RANKS_FINISH_H_
#define LOCKSTEP_EXAMPLES_RANKS_FINISH_H_

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// Call with the outcome of a rank's work while its group still exists. An error is told to the other ranks, which then
// fail by "rank 0 (...) failed: <message>" and not by "rank 0 left the group". Cancelled is for an end on which the
// ranks have agreed: it is not told, as the other ranks may still be saving. Returns `status`, its message with the
// name of this rank before it, once.
absl::Status FinishRank(comm::ProcessGroup* group, const absl::Status& status);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANKS_FINISH_H_
