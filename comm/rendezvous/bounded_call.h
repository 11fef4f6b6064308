#ifndef LOCKSTEP_COMM_RENDEZVOUS_BOUNDED_CALL_H_
#define LOCKSTEP_COMM_RENDEZVOUS_BOUNDED_CALL_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lockstep::comm::internal {

// Runs `call` on a thread of its own, without SIGPIPE, and returns what it returns; what it throws is a status too. At
// `deadline` it returns DeadlineExceeded and leaves the thread behind: LibTorch's TCPStore waits for an answer without
// any limit, so a server that is stopped would hold its clients for ever. `call` must own what it touches.
absl::Status CallByDeadline(std::function<absl::Status()> call, absl::Time deadline);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_RENDEZVOUS_BOUNDED_CALL_H_
