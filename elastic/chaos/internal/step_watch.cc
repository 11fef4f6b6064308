#include "lockstep/elastic/chaos/internal/step_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep::elastic::chaos::internal {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(2);

}  // namespace

StepWatch::StepWatch(Job* job, absl::Duration first_patience, absl::Duration patience)
    : job_(*job), patience_(patience), until_ns_(MonotonicNanos() + absl::ToInt64Nanoseconds(first_patience)) {}

absl::Status StepWatch::Check() {
  LOCKSTEP_RETURN_IF_ERROR(job_.Tend());
  if (job_.board().undone() > 0) {
    return absl::DataLossError(absl::StrCat("the state was lost: steps have been done again\n", job_.Dump()));
  }
  const int64_t step = job_.board().steps(), now = MonotonicNanos();
  if (step > step_) {
    step_ = step;
    until_ns_ = now + absl::ToInt64Nanoseconds(patience_);
  }
  if (now < until_ns_) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("the job hangs: no step after step ", step_, " for ",
                                                  absl::FormatDuration(patience_), "\n", job_.Dump()));
}

absl::Status StepWatch::Await(const std::string& what, absl::Duration patience,
                              const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + patience;
  while (!condition()) {
    LOCKSTEP_RETURN_IF_ERROR(Check());
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": not within ", absl::FormatDuration(patience), "\n", job_.Dump()));
    }
    absl::SleepFor(kPoll);
  }
  return absl::OkStatus();
}

absl::Status StepWatch::Sleep(absl::Duration duration) {
  const int64_t end = MonotonicNanos() + absl::ToInt64Nanoseconds(duration);
  return Await("sleep", absl::InfiniteDuration(), [end] { return MonotonicNanos() >= end; });
}

absl::StatusOr<int64_t> StepWatch::AwaitStep(int64_t after_ns, int64_t generation) {
  Board& board = job_.board();
  int64_t step = board.steps() + 1;
  while (step > 1 && board.Commit(step - 1).ns > after_ns) --step;
  Moment moment;
  const auto has_come = [&] {
    for (; step <= board.steps(); ++step) {
      moment = board.Commit(step);
      if (moment.ns > after_ns && moment.value > generation) return true;
    }
    return false;
  };
  LOCKSTEP_RETURN_IF_ERROR(Await("the next step", absl::Minutes(10), has_come));
  return moment.ns;
}

absl::Duration StepWatch::LongestPauseSince(int64_t begin_ns) {
  Board& board = job_.board();
  const int64_t last = board.steps();
  int64_t longest = 0;
  for (int64_t step = std::max<int64_t>(looked_at_, 1); step < last; ++step) {
    const int64_t from = std::max(board.Commit(step).ns, begin_ns), to = board.Commit(step + 1).ns;
    longest = std::max(longest, to - from);
  }
  looked_at_ = last;
  return absl::Nanoseconds(longest);
}

}  // namespace lockstep::elastic::chaos::internal
