// Collectives and messages among the ranks of one host, over memory that they share. Knows nothing of LibTorch.

#ifndef LOCKSTEP_COMM_SHM_COMMUNICATOR_H_
#define LOCKSTEP_COMM_SHM_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/shm/call.h"
#include "lockstep/comm/shm/segment.h"

namespace lockstep::comm::shm {

namespace internal {
class Collective;
class Mail;
class Port;
}  // namespace internal

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;  // 1024 at most
  Exchange exchange;
  absl::Time deadline;  // for meeting
  // The most that Allocate() can hand out on each rank. Address space, not memory: pages exist once they are touched.
  size_t heap_bytes = size_t{64} << 30;
};

// One rank's end.
//
//   absl::StatusOr<std::unique_ptr<Communicator>> communicator = Communicator::Create(options);
//   std::shared_ptr<char> sum = (*communicator)->Allocate(4096);   // reduced in place, without copies
//   Request request;
//   request.kind = Kind::kAllReduce;
//   request.dtype = DType::kFloat32;
//   request.buffers = {{sum.get(), 4096}};
//   const std::shared_ptr<Call> call = (*communicator)->Start(request);
//   absl::Status status = (*communicator)->Wait(*call, absl::Now() + absl::Seconds(30));
//
// Every rank must start the same collectives in the same order; a call that differs in kind, dtype, reduction, root or
// size is found before anybody's memory is written: every rank gets InvalidArgument that says who called what. There is
// no progress thread: a call moves on whenever this rank starts, tests or waits for any call. A wait polls for a while
// where every rank has a processor of its own, then sleeps in a futex.
//
// After the first error the communicator is failed: every call under way ends with that error, later ones at once, and
// the other ranks find it in the shared memory. Thread-safe; but collectives started by several threads at a time have
// no order that the ranks could agree on.
class Communicator {
 public:
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const CommunicatorOptions& options);

  // Calls under way are given up; Drain() first where that matters.
  ~Communicator();

  int rank() const;
  int size() const;

  // Memory that all ranks can reach, 64-byte aligned; it may outlive the communicator. Null if there is no room.
  std::shared_ptr<char> Allocate(size_t bytes);

  // Starts a collective, or a message to or from rank `peer` (kReceive: or -1, any rank). Does not wait. A message's
  // tag is any number; messages between two ranks with one tag arrive in order.
  std::shared_ptr<Call> Start(Request request);
  std::shared_ptr<Call> Send(int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner);
  std::shared_ptr<Call> Receive(int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner);

  // Until the call is done; its status. DeadlineExceeded naming the ranks that were waited for, which fails the
  // communicator.
  absl::Status Wait(const Call& call, absl::Time deadline);

  // Takes the calls under way as far as they go without waiting; whether this one is done.
  bool Test(const Call& call);

  // Waits for every call under way.
  absl::Status Drain(absl::Time deadline);

  // Fails the communicator here, from any thread and without waiting for one; waits end within a few milliseconds. The
  // other ranks are told.
  void Abort(const absl::Status& cause);

  // The first error, or OK.
  absl::Status failure() const;

 private:
  struct Arena;
  explicit Communicator(std::shared_ptr<Arena> arena, int rank, int size);

  std::shared_ptr<Call> StartMessage(Kind kind, int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner);
  template <typename IsDone>
  absl::Status WaitUntil(const IsDone& is_done, absl::Time deadline);
  bool ProgressLocked();
  template <typename IsDone>
  void SleepLocked(std::unique_lock<std::mutex>& lock, const IsDone& is_done, absl::Time deadline);
  void CheckOthersLocked();
  void FailLocked(const absl::Status& status);
  absl::Status TimedOutLocked(absl::Duration waited);
  void WakeOthersLocked();

  const std::shared_ptr<Arena> arena_;
  const std::unique_ptr<internal::Port> port_;
  const absl::Duration spin_;

  mutable std::mutex mutex_;  // of all that follows, but the atomics
  const std::unique_ptr<internal::Mail> mail_;
  std::deque<std::shared_ptr<internal::Collective>> collectives_;
  uint64_t next_round_ = 0;
  uint64_t next_number_ = 0;
  uint64_t next_message_ = 0;
  absl::Status failure_;

  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  absl::Status abort_cause_;  // of abort_mutex_
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_COMMUNICATOR_H_
