#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_WAKE_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_WAKE_H_

#include <functional>
#include <thread>

#include "lockstep/comm/watch/internal/arbiter.h"

namespace lockstep::comm::internal {

// A descriptor that becomes readable when somebody calls Wake(), for a thread that waits for descriptors.
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  int fd() const { return fd_; }
  void Wake();   // any thread
  void Clear();  // by the thread that waited

 private:
  const int fd_;
};

// The time from `now` to `due` for poll() and its like: in milliseconds, rounded up; -1 for never.
int PollTimeout(Clock::time_point now, Clock::time_point due);

// A thread of a watch's own: it takes none of the process's signals, and has a name that debuggers show.
std::thread StartThread(std::function<void()> run);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_WAKE_H_
