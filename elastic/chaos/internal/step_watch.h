// Watches that the steps of a job go on. Everything that waits for the job waits here.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_STEP_WATCH_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_STEP_WATCH_H_

#include <stdint.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/elastic/chaos/internal/job.h"

namespace lockstep::elastic::chaos::internal {

class StepWatch {
 public:
  // A job without a step for `patience` hangs. Its first step may take `first_patience`. The job outlives the object.
  StepWatch(Job* job, absl::Duration first_patience, absl::Duration patience);

  // Waits until `condition` holds. DeadlineExceeded: the job hangs, or `condition` has not held for `patience`; the
  // message has the state of all processes. Aborted: the job has ended.
  absl::Status Await(const std::string& what, absl::Duration patience, const std::function<bool()>& condition);

  // Waits for `duration`, and fails as Await() does.
  absl::Status Sleep(absl::Duration duration);

  // The time of the first step after `after_ns` in a generation above `generation`. Errors as of Await().
  absl::StatusOr<int64_t> AwaitStep(int64_t after_ns, int64_t generation);

  // The longest time without a step from `begin_ns` to the last step. Looks only at steps that the last call has not
  // seen.
  absl::Duration LongestPauseSince(int64_t begin_ns);

  absl::Status Check();

 private:
  Job& job_;
  const absl::Duration patience_;
  int64_t until_ns_;       // when the next step must have come
  int64_t step_ = 0;       // the last one that has been seen
  int64_t looked_at_ = 0;  // the last one that LongestPauseSince() has looked at
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_STEP_WATCH_H_
