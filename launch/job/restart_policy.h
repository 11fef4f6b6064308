// Decides whether and when failed ranks are started again. Pure.

#ifndef LOCKSTEP_LAUNCH_JOB_RESTART_POLICY_H_
#define LOCKSTEP_LAUNCH_JOB_RESTART_POLICY_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::launch {

// How the ranks of one attempt ended.
enum class AttemptEnd {
  kFailed,      // a rank failed
  kNotStarted,  // the ranks could not be started, or a rank could not execute its program
};

class RestartPolicy {
 public:
  // Up to `max_restarts` restarts within any `window`.
  RestartPolicy(int max_restarts, absl::Duration window) : max_restarts_(max_restarts), window_(window) {}

  // Returns whether ranks that started at `start` and ended like this at `now` start again. Counts the restart if so.
  // `now` never decreases.
  bool Restart(AttemptEnd end, absl::Time start, absl::Time now);

  // After Restart() returned true: the time to wait before the ranks start. 0 unless the last two attempts took less
  // than 10 s each. Then it is 100 ms, and doubles up to 10 s with each further attempt of this kind.
  absl::Duration Pause() const;

  // The number of restarts so far.
  int restarts() const { return restarts_; }

  // After Restart() returned true: "restart 2 of 3", and with a window "restart 8, 2 of 3 within 1m". With a pause, "in
  // 100ms" follows.
  std::string Announcement() const;

  // After Restart() returned false, what the last message adds to the failure: "; after 3 restarts", "; a failed
  // start-up is not retried", or "". If the last attempts, three or more, took less than 10 s each, it also says so:
  // "; each of the last 4 attempts failed within 200ms".
  std::string Ending(AttemptEnd end) const;

 private:
  void RecordAttempt(AttemptEnd end, absl::Duration duration);

  const int max_restarts_;
  const absl::Duration window_;
  int restarts_ = 0;
  std::vector<absl::Time> counted_;  // the restarts within the window
  int short_attempts_ = 0;           // the last attempts that failed within 10 s, in succession
  absl::Duration longest_;           // of these attempts
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_RESTART_POLICY_H_
