// How many steps of training a rank makes in a second, from the steps that it names. Pure.

#ifndef LOCKSTEP_LAUNCH_STATUS_STEP_RATE_H_
#define LOCKSTEP_LAUNCH_STATUS_STEP_RATE_H_

#include <stdint.h>

#include <deque>
#include <optional>

#include "absl/time/time.h"

namespace lockstep::launch {

class StepRate {
 public:
  // The rank has reached `step` at `now_ns`, which never decreases. A step that is lower than the one before begins
  // anew: the rank has gone back to a checkpoint.
  void Record(int64_t step, int64_t now_ns);

  // The last step; nullopt if there was none.
  std::optional<int64_t> step() const;

  // How long ago the last step was; nullopt if there was none.
  std::optional<absl::Duration> Age(int64_t now_ns) const;
  // Returns whether the last step came after `time_ns`.
  bool IsSince(int64_t time_ns) const { return !samples_.empty() && samples_.back().time_ns > time_ns; }

  // Over the last 10 s, or since the last step but one if that is longer. nullopt until there are two different steps.
  // If the next step is late, the rate falls until it comes. It is 0 if the next step is later than 10 s, and later
  // than a step takes.
  std::optional<double> PerSecond(int64_t now_ns) const;

 private:
  struct Sample {
    int64_t step;
    int64_t time_ns;
  };

  // In the order of their times; at least 100 ms lie between two of them, except for the last.
  std::deque<Sample> samples_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_STEP_RATE_H_
