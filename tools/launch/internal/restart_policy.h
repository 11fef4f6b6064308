// Decides whether failed ranks are started again. Knows neither processes nor a clock.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RESTART_POLICY_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RESTART_POLICY_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::launch::internal {

// How the ranks of one attempt ended.
enum class AttemptEnd {
  kFailed,      // a rank failed
  kNotStarted,  // the ranks could not be started, or a rank could not execute its program
  kSignalled,   // the launcher received a signal that ends it
};

class RestartPolicy {
 public:
  // Up to `max_restarts` restarts within any `window`.
  RestartPolicy(int max_restarts, absl::Duration window) : max_restarts_(max_restarts), window_(window) {}

  // Whether ranks that ended like this at `now` start again. Counts the restart if so. `now` never decreases.
  bool Restart(AttemptEnd end, absl::Time now);

  // The number of restarts so far.
  int restarts() const { return restarts_; }

  // After Restart() returned true: "restart 2 of 3", and with a window "restart 8, 2 of 3 within 1m".
  std::string Announcement() const;

  // After Restart() returned false, what the last message adds to the failure: "; after 3 restarts", "; a failed
  // start-up is not retried", or "".
  std::string Ending(AttemptEnd end) const;

 private:
  const int max_restarts_;
  const absl::Duration window_;
  int restarts_ = 0;
  std::vector<absl::Time> counted_;  // the restarts within the window
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_RESTART_POLICY_H_
