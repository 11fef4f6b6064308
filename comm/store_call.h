// Calls to a group's store that always end, even if the process that serves it dies.

#ifndef LOCKSTEP_COMM_STORE_CALL_H_
#define LOCKSTEP_COMM_STORE_CALL_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

// Runs `call` with group.store() and returns its status. An exception becomes a status too. `call` runs on a separate
// thread, which is abandoned if it does not return in time, so it must own everything it uses.
//
//   const auto word = std::make_shared<std::string>();
//   absl::Status status = comm::CallStore(*group, absl::Now() + group->timeout(), [word, key](c10d::Store& store) {
//     *word = store.get_to_str(key);
//     return absl::OkStatus();
//   });
//
// DeadlineExceeded: `deadline` passed. If the group fails meanwhile, returns the group's failure() at once, which names
// a dead rank. If the group has failed before, `call` has until `deadline`, but at most 1 s.
absl::Status CallStore(const ProcessGroup& group, absl::Time deadline,
                       std::function<absl::Status(c10d::Store& store)> call);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_CALL_H_
