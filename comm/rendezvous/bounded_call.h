#ifndef LOCKSTEP_COMM_RENDEZVOUS_BOUNDED_CALL_H_
#define LOCKSTEP_COMM_RENDEZVOUS_BOUNDED_CALL_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lockstep::comm::internal {

// A call on a thread of its own, without SIGPIPE, which is left behind if nobody waits for its end: a resolver, a file
// system or another's store may take any time. `call` must own what it touches.
class BoundedCall {
 public:
  explicit BoundedCall(std::function<absl::Status()> call);
  ~BoundedCall();
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

  // Whether the call has ended by `deadline`.
  bool Await(absl::Time deadline);

  // What the call has returned; what it has thrown is a status too. ResourceExhausted if the system refused the thread.
  // Only once it has ended.
  absl::Status result() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

// What `call` returns, or DeadlineExceeded at `deadline`, where it is left behind.
absl::Status CallByDeadline(std::function<absl::Status()> call, absl::Time deadline);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_RENDEZVOUS_BOUNDED_CALL_H_
