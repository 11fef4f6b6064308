#include "lockstep/tools/launch/internal/membership.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::launch::internal {
namespace {

// If no member is left, how long the first new process waits for the others, so that they start as one generation.
constexpr absl::Duration kWaitForAll = absl::Seconds(30);
// A generation that lasts longer has not failed at its start, even if it completes no step.
constexpr absl::Duration kShortGeneration = absl::Seconds(10);
constexpr int kMostBarrenGenerations = 10;
// Failures of ranks that one line names.
constexpr size_t kMostCauses = 3;
// A process that fails so often before it is ready will always do so.
constexpr int kMostFailedStarts = 5;

}  // namespace

Membership::Membership(const Limits& limits, absl::Time now)
    : limits_(limits), slots_(limits.ranks + limits.spares), regroups_since_(now) {
  for (Slot& slot : slots_) slot.started = now;
}

std::vector<int> Membership::In(State state) const {
  std::vector<int> slots;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state == state) slots.push_back(static_cast<int>(i));
  }
  return slots;
}

void Membership::Decide(Decision::Kind kind, std::vector<int> slots, std::string reason) {
  if (slots.empty()) return;
  decisions_.push_back({kind, std::move(slots), std::move(reason)});
}

std::vector<Membership::Decision> Membership::Take() { return std::exchange(decisions_, {}); }

bool Membership::finished() const {
  return finished_members_ > 0 && std::none_of(slots_.begin(), slots_.end(), [](const Slot& s) {
           return s.owes || s.state == State::kMember || (s.state == State::kReady && s.rank >= 0);
         });
}

bool Membership::awaits_start() const { return !In(State::kAwaited).empty(); }

bool Membership::SomebodyComes() const { return !In(State::kStarting).empty() || awaits_start(); }

void Membership::LookAt(absl::Time time) { next_look_ = std::min(next_look_, time); }

void Membership::OnReady(int slot, int64_t left, const Ask& ask, absl::Time now) {
  Slot& process = slots_[slot];
  // A process that joins again because its time was over may have got the generation meanwhile.
  if (process.state == State::kMember && left != generation_) return;
  const bool leaves = process.state == State::kMember, is_new = process.state == State::kStarting;
  process.state = State::kReady;
  process.ask = ask;
  process.failed_starts = 0;
  if (leaves && phase_ == Phase::kRunning && !changes_) {
    const std::string why = ask.reason.empty() ? "" : absl::StrCat(": ", ask.reason);
    Break(absl::StrCat("rank ", process.rank, " left generation ", generation_, why), /*is_failure=*/false, now);
    if (over_) verdict_ = absl::AbortedError(absl::StrCat(reason_, ending_));
  } else if (leaves && phase_ == Phase::kRunning) {
    Regroup(now);
  } else if (is_new && phase_ == Phase::kRunning) {
    TellThatOneIsReady(slot);
  }
}

// Unless it is a spare.
void Membership::TellThatOneIsReady(int slot) {
  const std::vector<int> running = In(State::kMember);
  if (changes_ || static_cast<int>(running.size()) >= limits_.ranks || finished_members_ > 0) return;
  changes_ = true;
  reason_ = absl::StrCat("process ", slot, " is ready");
  Decide(Decision::Kind::kAfterStep, running, reason_);
}

void Membership::OnProgress(int slot, int64_t step) {
  if (slots_[slot].state != State::kMember || step <= step_) return;
  step_ = step;
  progressed_ = true;
}

void Membership::Regroup(absl::Time now) {
  phase_ = Phase::kRegrouping;
  regroups_since_ = now;
  absl::Duration longest;
  for (const int slot : members_) longest = std::max(longest, slots_[slot].ask.leave_timeout);
  kill_at_ = now + longest;
}

void Membership::Break(const std::string& cause, bool is_failure, absl::Time now) {
  if (phase_ == Phase::kRunning) {
    over_ = HasBarrenGenerations(now);
    Regroup(now);
  }
  // A member that leaves does so because of a failure, which may be seen later.
  if (failures_ == 0) reason_ = cause;
  if (is_failure && failures_++ > 0 && failures_ <= kMostCauses) absl::StrAppend(&reason_, "; ", cause);
  changes_ = false;
  Decide(Decision::Kind::kNow, In(State::kMember), cause);
}

// Counts the generation that has just been broken.
bool Membership::HasBarrenGenerations(absl::Time now) {
  barren_ = progressed_ || now - formed_at_ >= kShortGeneration ? 0 : barren_ + 1;
  if (barren_ < kMostBarrenGenerations) return false;
  ending_ = absl::StrCat("; the last ", barren_, " generations ended before they completed a step");
  return true;
}

bool Membership::MayRestart(const Slot& slot, bool was_starting, absl::Time now) {
  if (!policy_) {
    int most = limits_.max_restarts;
    for (const Slot& s : slots_) {
      if (limits_.max_restarts == 0) most = std::max(most, s.ask.max_restarts);
    }
    const bool any =
        most == 0 && std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.ask.max_restarts < 0; });
    policy_.emplace(any ? std::numeric_limits<int>::max() : most, limits_.restart_window);
  }
  // Only a process that was never ready has failed at its start.
  const absl::Time started = was_starting ? slot.started : absl::InfinitePast();
  if (!policy_->Restart(AttemptEnd::kFailed, started, now)) {
    ending_ = policy_->Ending(AttemptEnd::kFailed);
    return false;
  }
  ++restarts_;
  return true;
}

bool Membership::OnFailure(int slot, const std::string& cause, absl::Time now) {
  if (!formed() || !verdict_.ok() || over_) return false;
  Slot& process = slots_[slot];
  const bool was_member = process.state == State::kMember;
  const bool was_starting = process.state == State::kStarting;
  process.state = State::kAwaited;
  if (was_member) Break(cause, /*is_failure=*/true, now);
  over_ |= !MayRestart(process, was_starting, now);
  if (over_) return false;
  if (was_starting) ++process.failed_starts;
  process.rank = process.local_rank = -1;
  process.owes |= was_member;
  process.state = process.failed_starts < kMostFailedStarts ? State::kAwaited : State::kGivenUp;
  process.start_at = now + policy_->Pause();
  if (process.state == State::kGivenUp) Decide(Decision::Kind::kGiveUp, {slot}, cause);
  return true;
}

void Membership::OnSuccess(int slot) {
  Slot& process = slots_[slot];
  if (process.state == State::kMember) {
    ++finished_members_;
    process.owes = false;
  }
  process.state = State::kFinished;
}

void Membership::Update(absl::Time now) {
  next_look_ = absl::InfiniteFuture();
  if (!verdict_.ok() || over_ || finished()) return;
  StartAwaited(now);
  if (phase_ == Phase::kRegrouping) KillLate(now);
  if (phase_ != Phase::kRunning && In(State::kMember).empty()) TryToForm(now);
}

void Membership::StartAwaited(absl::Time now) {
  std::vector<int> due;
  for (const int slot : In(State::kAwaited)) {
    // When a member has finished, the job is about to end. Only what was to be done in this slot is left.
    if (finished_members_ > 0 && !slots_[slot].owes) continue;
    if (slots_[slot].start_at > now) {
      LookAt(slots_[slot].start_at);
      continue;
    }
    slots_[slot].state = State::kStarting;
    slots_[slot].started = now;
    due.push_back(slot);
  }
  Decide(Decision::Kind::kStart, due);
}

void Membership::KillLate(absl::Time now) {
  const std::vector<int> late = In(State::kMember);
  if (late.empty() || kill_at_ == absl::InfiniteFuture()) return;
  if (now < kill_at_) {
    LookAt(kill_at_);
    return;
  }
  kill_at_ = absl::InfiniteFuture();
  Decide(Decision::Kind::kKill, late, reason_);
}

bool Membership::MayForm(const std::vector<int>& ready, absl::Time now) {
  if (!formed()) return true;
  const bool has_survivor = std::any_of(ready.begin(), ready.end(), [&](int slot) { return slots_[slot].rank >= 0; });
  if (has_survivor || !SomebodyComes()) return true;
  const absl::Time until = regroups_since_ + kWaitForAll;
  LookAt(until);
  return now >= until;
}

void Membership::TryToForm(absl::Time now) {
  std::vector<int> ready = In(State::kReady);
  if (!formed() && static_cast<int>(ready.size()) < limits_.ranks) return;
  int least = 1;
  for (const int slot : ready) least = std::max(least, slots_[slot].ask.min_ranks);
  if (static_cast<int>(ready.size()) < least) {
    WaitForMore(static_cast<int>(ready.size()), least, now);
  } else if (MayForm(ready, now)) {
    Form(std::move(ready), now);
  }
}

void Membership::WaitForMore(int ready, int least, absl::Time now) {
  const absl::Time until = regroups_since_ + limits_.wait_for_ranks;
  LookAt(until);
  const std::string number =
      absl::StrCat(ready, " of at least ", least, least == 1 ? " rank is" : " ranks are", " there");
  const std::string before = reason_.empty() ? "" : absl::StrCat("; before, ", reason_);
  if (!SomebodyComes()) {
    verdict_ = absl::FailedPreconditionError(absl::StrCat(number, ", and no other one comes", before));
  } else if (now >= until) {
    verdict_ = absl::DeadlineExceededError(
        absl::StrCat(number, " after ", absl::FormatDuration(limits_.wait_for_ranks), before));
  }
}

// `wished`, or the lowest one that no process has.
int Membership::FreeLocalRank(int wished) const {
  std::vector<bool> taken(limits_.ranks + 1);
  for (const Slot& slot : slots_) {
    if (slot.local_rank >= 0) taken[slot.local_rank] = true;
  }
  if (wished < limits_.ranks && !taken[wished]) return wished;
  return static_cast<int>(std::find(taken.begin(), taken.end(), false) - taken.begin());
}

// The members of the generation before keep their order, and new ones follow.
void Membership::Form(std::vector<int> ready, absl::Time now) {
  std::stable_sort(ready.begin(), ready.end(), [&](int a, int b) {
    const auto order = [&](int slot) {
      return slots_[slot].rank >= 0 ? slots_[slot].rank : std::numeric_limits<int>::max();
    };
    return order(a) < order(b);
  });
  ready.resize(std::min<size_t>(ready.size(), limits_.ranks));
  for (size_t i = 0; i < ready.size(); ++i) {
    Slot& slot = slots_[ready[i]];
    slot.state = State::kMember;
    slot.rank = static_cast<int>(i);
    if (slot.local_rank < 0) slot.local_rank = FreeLocalRank(ready[i]);
  }
  for (Slot& slot : slots_) slot.owes = false;  // the new generation does what was to be done
  ++generation_;
  phase_ = Phase::kRunning;
  formed_at_ = now;
  progressed_ = changes_ = false;
  if (failures_ > kMostCauses) absl::StrAppend(&reason_, "; and ", failures_ - kMostCauses, " more");
  failures_ = 0;
  kill_at_ = absl::InfiniteFuture();
  members_ = ready;
  Decide(Decision::Kind::kForm, std::move(ready), std::exchange(reason_, ""));
}

}  // namespace lockstep::launch::internal
