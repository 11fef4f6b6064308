// Times on the monotonic clock, in nanoseconds, until which a thread waits in poll().

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_DEADLINE_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_DEADLINE_H_

#include <stdint.h>

#include <algorithm>
#include <limits>

#include "absl/time/time.h"
#include "lockstep/tools/launch/internal/report_file.h"

namespace lockstep::launch::internal {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// `duration` after `from`; kNever if that is too far away.
inline int64_t After(int64_t from, absl::Duration duration) {
  return duration < absl::Nanoseconds(kNever - from) ? from + absl::ToInt64Nanoseconds(duration) : kNever;
}

// The same, from now on.
inline int64_t After(absl::Duration duration) { return After(MonotonicNanos(), duration); }

// For poll(): in milliseconds, rounded up; -1 for never.
inline int PollTimeout(int64_t deadline) {
  constexpr int64_t kMillisecond = 1000000;
  if (deadline == kNever) return -1;
  const int64_t left = (deadline - MonotonicNanos() + kMillisecond - 1) / kMillisecond;
  return static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
}

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_DEADLINE_H_
