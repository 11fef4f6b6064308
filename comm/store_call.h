// Calls to a group's store that end, whatever becomes of the process that serves it.

#ifndef LOCKSTEP_COMM_STORE_CALL_H_
#define LOCKSTEP_COMM_STORE_CALL_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

// Returns what `call` returns, given group.store(); what it throws is a status too. `call` runs on a thread of its own,
// which is left behind where it does not return in time, so it must own what it touches.
//
//   const auto word = std::make_shared<std::string>();
//   absl::Status status = comm::CallStore(*group, absl::Now() + group->timeout(), [word, key](c10d::Store& store) {
//     *word = store.get_to_str(key);
//     return absl::OkStatus();
//   });
//
// DeadlineExceeded at `deadline`. The group's failure() as soon as the group fails, so a rank that died is named rather
// than waited for. In a group that has failed before, the call has until `deadline`, but 1 s at most.
absl::Status CallStore(const ProcessGroup& group, absl::Time deadline,
                       std::function<absl::Status(c10d::Store& store)> call);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_CALL_H_
