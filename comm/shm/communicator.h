// Collectives and messages among the ranks of one host, over shared memory. No LibTorch.

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
#include "lockstep/comm/shm/operation.h"
#include "lockstep/comm/shm/segment.h"

namespace lockstep::comm::shm {

namespace internal {
class Collective;
class Mail;
class Port;
}  // namespace internal

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;  // at most 1024
  Exchange exchange;
  absl::Time deadline;  // for the meeting
  // The maximum size of all allocations by Allocate() on each rank. This is address space: pages use memory once they
  // are touched.
  size_t heap_bytes = size_t{64} << 30;
};

// One rank's communicator.
//
//   absl::StatusOr<std::unique_ptr<Communicator>> communicator = Communicator::Create(options);
//   std::shared_ptr<char> sum = (*communicator)->Allocate(4096);   // reduced in place, without copies
//   Request request;
//   request.kind = Kind::kAllReduce;
//   request.dtype = DType::kFloat32;
//   request.buffers = {{sum.get(), 4096}};
//   const std::shared_ptr<Operation> operation = (*communicator)->Start(request);
//   absl::Status status = (*communicator)->Wait(*operation, absl::Now() + absl::Seconds(30));
//
// Every rank must start the same collectives in the same order. If a call differs in kind, dtype, reduction, root or
// size, every rank gets InvalidArgument, which says which rank made which call, before any buffer is written. There is
// no progress thread: a call progresses whenever this rank starts, tests or waits for any call. A wait polls for a
// while if every rank can have a processor, and then sleeps in a futex.
//
// After the first error the communicator has failed: every call under way ends with that error, later calls end at
// once, and the other ranks find the error in the shared memory. Thread-safe, but collectives that several threads
// start at a time have no order on which the ranks could agree.
class Communicator {
 public:
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const CommunicatorOptions& options);

  // Abandons calls under way; call Drain() first to complete them.
  ~Communicator();

  int rank() const;
  int size() const;

  // Memory that all ranks can access, 64-byte aligned. It may outlive the communicator. Null if memory ran out.
  std::shared_ptr<char> Allocate(size_t bytes);

  // Returns whether all of these bytes are in such memory.
  bool Owns(const void* data, size_t bytes) const;

  // Returns the place of such memory, which is the same on all ranks, and the memory at a place: null if that is outside.
  // The latter keeps the mapping, and not the allocation.
  size_t PlaceOf(const void* data) const;
  std::shared_ptr<char> AtPlace(size_t place, size_t bytes);

  // Starts a collective, or a message to or from rank `peer` (for Receive: -1 for any rank). Does not wait. The tag of
  // a message is any number. Messages between two ranks with one tag arrive in order.
  std::shared_ptr<Operation> Start(Request request);
  std::shared_ptr<Operation> Send(int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner);
  std::shared_ptr<Operation> Receive(int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner);

  // Waits until the call is done and returns its status. DeadlineExceeded, naming the ranks that did not arrive; this
  // fails the communicator.
  absl::Status Wait(const Operation& operation, absl::Time deadline);

  // Advances the calls under way as far as possible without waiting. Returns whether this one is done.
  bool Test(const Operation& operation);

  // Waits for every call under way.
  absl::Status Drain(absl::Time deadline);

  // Fails the communicator on this rank, from any thread and without waiting. Waits end within a few milliseconds. The
  // other ranks are told.
  void Abort(const absl::Status& cause);

  // The first error, or OK.
  absl::Status failure() const;

 private:
  struct Arena;
  explicit Communicator(std::shared_ptr<Arena> arena, int rank, int size);

  std::shared_ptr<Operation> StartMessage(Kind kind, int peer, int64_t tag, Buffer buffer, std::shared_ptr<void> owner);
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

  mutable std::mutex mutex_;  // guards all members below except the atomics
  const std::unique_ptr<internal::Mail> mail_;
  std::deque<std::shared_ptr<internal::Collective>> collectives_;
  uint64_t next_round_ = 0;
  uint64_t next_number_ = 0;
  uint64_t next_message_ = 0;
  absl::Status failure_;

  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  absl::Status abort_cause_;  // guarded by abort_mutex_
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_COMMUNICATOR_H_
