#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_WAKE_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_WAKE_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/watch/internal/arbiter.h"

namespace lockstep::comm::internal {

// A descriptor that becomes readable after Wake(), for a thread that waits for descriptors.
class Waker {
 public:
  Waker() = default;
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // To be called first, once. ResourceExhausted if the process is out of descriptors.
  absl::Status Open();

  int fd() const { return fd_; }
  void Wake();   // any thread
  void Clear();  // by the thread that waited

 private:
  int fd_ = -1;
};

// The time from `now` to `due` for poll() and its like: in milliseconds, rounded up; -1 for never.
int PollTimeout(Clock::time_point now, Clock::time_point due);

// Starts a watch's thread: it takes none of the process's signals, and has a name that debuggers show.
// ResourceExhausted if the system refuses it.
absl::StatusOr<std::thread> StartWatchThread(std::function<void()> run);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_WAKE_H_
