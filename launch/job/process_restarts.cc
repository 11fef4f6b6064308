#include "lockstep/launch/job/process_restarts.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::launch {
namespace {

// How many restarts `most` and the processes allow.
int Allowed(int most, const std::vector<JoinOptions>& asks) {
  if (most != 0) return most;
  bool any = false;
  for (const JoinOptions& ask : asks) {
    most = std::max(most, ask.max_restarts);
    any |= ask.max_restarts < 0;
  }
  return any && most == 0 ? std::numeric_limits<int>::max() : most;
}

}  // namespace

void ProcessRestarts::Start(size_t slots, std::vector<absl::Time> made, absl::Time now) {
  times_.assign(slots, {now, now});
  made_ = std::move(made);
  policy_.reset();
}

void ProcessRestarts::OnStart(int slot, absl::Time now) {
  times_.resize(std::max(times_.size(), static_cast<size_t>(slot) + 1));
  times_[slot] = {now, now};
}

bool ProcessRestarts::Count(int slot, bool was_starting, const std::vector<JoinOptions>& asks, absl::Time now) {
  if (!policy_) {
    policy_.emplace(Allowed(limits_.max_restarts, asks), limits_.window);
    for (const absl::Time time : made_) policy_->Restart(AttemptEnd::kFailed, absl::InfinitePast(), time);
  }
  // Only a process that was never ready has failed at its start.
  const absl::Time started = was_starting ? times_[slot].started : absl::InfinitePast();
  if (!policy_->Restart(AttemptEnd::kFailed, started, now)) return false;
  made_.push_back(now);
  return true;
}

void ProcessRestarts::Await(int slot, bool was_member, absl::Time now) {
  times_[slot].start_at = now + policy_->Pause();
  times_[slot].head_start_ends = was_member ? now + limits_.head_start : absl::InfinitePast();
}

}  // namespace lockstep::launch
