#ifndef LOCKSTEP_COMM_STORE_INTERNAL_BOUNDED_CALL_H_
#define LOCKSTEP_COMM_STORE_INTERNAL_BOUNDED_CALL_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lockstep::comm::internal {

// Runs a call on a separate thread, without SIGPIPE, and abandons it if it is not awaited to its end: a resolver, a
// file system or a remote store may block for any time. `call` must own everything it uses.
class BoundedCall {
 public:
  explicit BoundedCall(std::function<absl::Status()> call);
  ~BoundedCall();
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

  // Returns whether the call has ended by `deadline`.
  bool Await(absl::Time deadline);

  // The result of the call; an exception becomes a status. ResourceExhausted: the system refused the thread. Requires:
  // the call has ended.
  absl::Status result() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

// Returns the result of `call`, or DeadlineExceeded at `deadline` and abandons the call.
absl::Status CallByDeadline(std::function<absl::Status()> call, absl::Time deadline);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_STORE_INTERNAL_BOUNDED_CALL_H_
