// Decides whether and when the process of a slot is started again after it has failed, while the other ranks go on.
// Part of Membership, and as pure.

#ifndef LOCKSTEP_LAUNCH_JOB_PROCESS_RESTARTS_H_
#define LOCKSTEP_LAUNCH_JOB_PROCESS_RESTARTS_H_

#include <stddef.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/launch/job/restart_policy.h"
#include "lockstep/launch/link/rank_generation.h"

namespace lockstep::launch {

class ProcessRestarts {
 public:
  struct Limits {
    int max_restarts = 0;  // of processes, in the window; 0: as many as the processes ask for
    absl::Duration window = absl::InfiniteDuration();
    // How long the process that takes a failed member's place is not started while the others have not completed a step
    // without it: as it loads its libraries it would take their processors.
    absl::Duration head_start;
  };

  explicit ProcessRestarts(const Limits& limits) : limits_(limits) {}

  // All processes start at `now`. `made`: when the restarts so far were made.
  void Start(size_t slots, std::vector<absl::Time> made, absl::Time now);
  // The process of a slot, which may be a new one, starts.
  void OnStart(int slot, absl::Time now);
  // All processes have asked, so Count() begins again with what they ask for.
  void OnFirstGeneration() { policy_.reset(); }

  // Returns whether the process of a slot that has failed may start again, which then counts as a restart.
  // `was_starting`: it had not been ready. `asks`: the request of the process of each slot.
  bool Count(int slot, bool was_starting, const std::vector<JoinOptions>& asks, absl::Time now);
  // Call it after Count() has returned true. The next process of the slot starts after the policy's pause (StartOf()),
  // and if it `was_member` that failed, after the others' head start (HeadStartEnds()).
  void Await(int slot, bool was_member, absl::Time now);
  // Call it after Count() has returned false. Returns what the launcher's last message adds to the failure, as "; after
  // 3 restarts".
  std::string Ending() const { return policy_->Ending(AttemptEnd::kFailed); }

  // When a process that waits may start, and when the head start of the others ends.
  absl::Time StartOf(int slot) const { return times_[slot].start_at; }
  absl::Time HeadStartEnds(int slot) const { return times_[slot].head_start_ends; }

 private:
  struct Times {
    absl::Time started, start_at, head_start_ends = absl::InfinitePast();
  };

  const Limits limits_;
  std::vector<Times> times_;             // by slot
  std::vector<absl::Time> made_;         // the restarts so far
  std::optional<RestartPolicy> policy_;  // made when the first process fails
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_PROCESS_RESTARTS_H_
