#include "lockstep/elastic/internal/rank_steps.h"

#include <algorithm>

namespace lockstep::elastic::internal {

using launch::StepFailure;

namespace {

// The most steps between two checks, if steps are much faster than the interval.
constexpr int64_t kMostStepsBetweenChecks = 1000;

// The rank that made the error, if all ranks have got it.
std::optional<int> CulpritOf(const GenerationFacts& facts) {
  if (facts.heard && facts.trains) return facts.heard->rank;
  return facts.culprit;
}

}  // namespace

int64_t RankSteps::step() const { return first_step_ + std::max<int64_t>(commits_, 0); }

Progress RankSteps::progress(int node) const {
  const bool counts_start = sharded_ && commits_ != kNoState;
  return {counts_start ? (divided_ ? commits_ + 1 : 0) : commits_, part_, node};
}

int64_t RankSteps::CommitsIn(int64_t progress) const { return sharded_ && progress > 0 ? progress - 1 : progress; }

bool RankSteps::IsRepeated() const {
  return std::any_of(failures_.failures().begin(), failures_.failures().end(),
                     [this](const StepFailure& failure) { return failure.step >= step(); });
}

void RankSteps::Restore(int64_t first_step, std::vector<StepFailure> failures) {
  first_step_ = first_step;
  failures_.Restore(std::move(failures));
}

void RankSteps::OnJoin(const GenerationFacts& facts, std::optional<StepFailure> failure) {
  was_first_ |= facts.number == 1;
  if (!failure) return;
  if (failure->step < 0) failure->step = step();
  failures_.Add(*failure);
}

StepUnderWay RankSteps::OnMetInCommit(const Healing& healing) {
  if (part_ != StepPart::kGradients) return StepUnderWay::kNone;
  if (healing.newest > progress(0).commits) return StepUnderWay::kApply;
  part_ = StepPart::kNothing;
  return StepUnderWay::kTakeBack;
}

bool RankSteps::HasAllParameters(const Healing& healing, int rank) const {
  return !healing.IsReceiver(rank) && part_ == StepPart::kNothing;
}

bool RankSteps::HealsInPlace(const Healing& healing, int rank) {
  const bool in_place = internal::HealsInPlace(progress(0).commits, healing.newest);
  if (in_place && healing.IsReceiver(rank)) GiveUpState();
  return in_place;
}

void RankSteps::OnHealed(const Healing& healing) {
  commits_ = CommitsIn(healing.newest);
  part_ = StepPart::kNothing;
}

void RankSteps::OnCommit() {
  part_ = StepPart::kNothing;
  ++commits_;
}

bool RankSteps::NeedsCause(const GenerationFacts& facts, const absl::Status& status) const {
  if (status.ok() || facts.regroups || facts.is_final || failures_.Verdict()) return false;
  return !CulpritOf(facts);
}

Departure RankSteps::OnEnd(const GenerationFacts& facts, const absl::Status& status, bool others_failed) {
  Departure departure;
  if (const std::optional<std::string> verdict = failures_.Verdict()) {
    departure.kind = Departure::Kind::kEndJob;
    departure.reason = *verdict;
    return departure;
  }
  if (facts.regroups) {
    departure.kind = Departure::Kind::kJoin;
    return departure;
  }
  // `train` made the error, so the ranks repeat the step; or all of them may have made it, and none has a step.
  const bool is_own = !status.ok() && !others_failed && !facts.is_final && (facts.trains || Begins());
  if (!is_own && !others_failed) return departure;
  departure.kind = Departure::Kind::kJoin;
  departure.reason = std::string(status.message());
  if (is_own && facts.trains && Begins() && absl::IsInvalidArgument(status)) {
    departure.kind = Departure::Kind::kEndJob;  // what the program was given is wrong, and stays so
    return departure;
  }
  departure.takes_back = part_ == StepPart::kNothing;
  if (!is_own) return departure;
  const int culprit = CulpritOf(facts).value_or(facts.rank);
  departure.failure = StepFailure{step(), culprit, facts.heard ? facts.heard->cause : std::string(status.message())};
  departure.reason = ErrorText(*departure.failure);
  if (HasFailedBefore(facts, culprit)) departure.kind = Departure::Kind::kEnd;
  return departure;
}

// Returns whether the job has just begun, and has not completed a step. A state that was destroyed was to get steps.
bool RankSteps::Begins() const { return was_first_ && commits_ == 0; }

// An error that comes again may be this process's: no memory, a broken device. A new process does not have it. But one
// before the first step is likely a mistake that all processes make. New ones would not know how often it came.
bool RankSteps::HasFailedBefore(const GenerationFacts& facts, int culprit) {
  if (Begins() || culprit != facts.rank) return false;
  const std::optional<int64_t> before = std::exchange(own_error_, commits_);
  return facts.world_size > 1 && before && commits_ - *before <= window_;
}

int64_t CheckPace::Pause(int64_t commits, absl::Duration interval, absl::Time now) const {
  const absl::Duration step = (now - last_time_) / (commits - last_);
  const double steps = absl::FDivDuration(interval, std::max(step, absl::Nanoseconds(1)));
  return std::clamp<int64_t>(static_cast<int64_t>(steps), 1, kMostStepsBetweenChecks);
}

void CheckPace::OnCheck(int64_t commits, int64_t pause, absl::Time now) {
  next_ = commits + pause;
  last_ = commits;
  last_time_ = now;
}

}  // namespace lockstep::elastic::internal
