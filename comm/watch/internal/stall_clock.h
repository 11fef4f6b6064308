// When a rank says that a call lasts long. Pure.

#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_STALL_CLOCK_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_STALL_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep::comm::internal {

// Says so after `first`, if that is sooner than `patience`; after `patience`; and then again each third of it.
class StallClock {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StallClock(Clock::duration patience, Clock::duration first = Clock::duration::max())
      : patience_(patience), first_(std::min(first, patience)) {}

  // How often to look.
  Clock::duration interval() const { return std::min<Clock::duration>(patience_ / 15, std::chrono::seconds(2)); }

  // The last call that the rank has begun, and the last one that has ended, at `now`. For how long the call has lasted,
  // if the rank is to say so now. A call counts from the first look that has seen it.
  std::optional<Clock::duration> Look(int64_t begun, int64_t ended, Clock::time_point now) {
    if (begun <= ended || begun != call_) {
      call_ = begun > ended ? begun : -1;
      since_ = now;
      next_ = now + first_;
      return std::nullopt;
    }
    if (now < next_) return std::nullopt;
    next_ = std::max(now + patience_ / 3, since_ + patience_);
    return now - since_;
  }

 private:
  const Clock::duration patience_, first_;
  int64_t call_ = -1;
  Clock::time_point since_, next_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_STALL_CLOCK_H_
