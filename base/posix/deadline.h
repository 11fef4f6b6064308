// The monotonic clock, and how long a thread waits in poll().

#ifndef LOCKSTEP_BASE_POSIX_DEADLINE_H_
#define LOCKSTEP_BASE_POSIX_DEADLINE_H_

#include <stdint.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "absl/time/time.h"

namespace lockstep {

// CLOCK_MONOTONIC in nanoseconds: the same in all processes of a host.
inline int64_t MonotonicNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

// Returns the time of the same clock. It counts from the start of the machine, which stands for the Unix epoch.
inline absl::Time MonotonicTime() { return absl::UnixEpoch() + absl::Nanoseconds(MonotonicNanos()); }

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// `duration` after `from`; kNever if that is too far away.
inline int64_t After(int64_t from, absl::Duration duration) {
  return duration < absl::Nanoseconds(kNever - from) ? from + absl::ToInt64Nanoseconds(duration) : kNever;
}

// `duration` after now; kNever if that is too far away.
inline int64_t After(absl::Duration duration) { return After(MonotonicNanos(), duration); }

// The timeout for poll() and epoll_wait() that waits for `left`: milliseconds, rounded up, so that a wait is not
// repeated without a pause. 0 where `left` is negative, -1 where it is infinite.
inline int PollTimeout(absl::Duration left) {
  if (left == absl::InfiniteDuration()) return -1;
  const int64_t milliseconds = absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<int64_t>(milliseconds, 0, std::numeric_limits<int>::max()));
}

// The timeout for a wait until the clock is `due`; time_point::max() is infinite.
inline int PollTimeout(std::chrono::steady_clock::time_point due) {
  using Clock = std::chrono::steady_clock;
  return PollTimeout(due == Clock::time_point::max() ? absl::InfiniteDuration() : absl::FromChrono(due - Clock::now()));
}

// The timeout for a wait until MonotonicNanos() is `deadline`.
inline int PollTimeout(int64_t deadline) {
  return PollTimeout(deadline == kNever ? absl::InfiniteDuration() : absl::Nanoseconds(deadline - MonotonicNanos()));
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_DEADLINE_H_
