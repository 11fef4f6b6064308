// How the processes of an attempt ended, and what the attempt returns.

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/link/agent_link.h"
#include "lockstep/launch/node/attempt.h"
#include "lockstep/launch/output/last_lines.h"
#include "lockstep/launch/report/report_file.h"

namespace lockstep::launch {
namespace {

constexpr char kEndedEarly[] = "it ended before its work did";

// Errors with these codes mean that a peer was gone or did not answer, most likely another rank.
bool IsAboutOthers(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

// Does not reap the process: until it is reaped, the number of the rank's process group cannot be reused.
void Attempt::RecordEnd(int i) {
  Outcome& outcome = outcomes_[i];
  outcome.ended = true;
  outcome.time_ns = MonotonicNanos();
  siginfo_t info = {};
  if (waitid(P_PID, outcome.end.pid, &info, WEXITED | WNOWAIT | WNOHANG) != 0) {
    outcome.end.message = "other code in the launching process took its exit code";
  } else if (info.si_code == CLD_EXITED) {
    outcome.end.exit_code = info.si_status;
  } else {
    outcome.end.signal = info.si_status;
  }
  rank_links_.ReadAll();
  const bool ended_early = rank_links_.owes_finish(i);
  outcome.resumable = outcome.end.exit_code == kResumableExitCode && rank_links_.has_finished(i);
  outcome.failed = outcome.end.exit_code != 0 && !outcome.resumable;
  if (!outcome.failed && !outcome.told_to_end && ended_early) {
    outcome.failed = true;
    outcome.end.message = kEndedEarly;
  }
  RecordReport(i);
  if (outcome.failed)
    output_.WriteError(processes_[i].attempt, outcome.end.local_rank, TorchErrorOf(processes_[i].report));
  events_.RankEnded(processes_[i].attempt, outcome, processes_[i].started_ns);
  watcher_.OnEnd(outcome.end);
  if (outcome.told_to_end) return;
  const Failure failure = FailureOf(outcome);
  outcome.others_go_on = HoldsEarlyDeath(i, failure);
  if (!outcome.others_go_on) DecideAbout(i, failure);
}

// The last lines that the rank has written to a file of its own.
absl::Status Attempt::WithLastLines(absl::Status failure, int local_rank) const {
  const std::string file = output_.StderrPath(local_rank);
  if (!file.empty()) AddStderr(file, LastLinesOfFile(file), &failure);
  return failure;
}

// Returns the failure of one process, while the others go on. OK if it succeeded.
Failure Attempt::FailureOf(const Outcome& outcome) const {
  Failure failure;
  if (!outcome.failed) return failure;
  const std::vector<Outcome> alone = {outcome};
  failure.status = WithLastLines(FailureStatus(alone[0], alone, absl::ZeroDuration()), outcome.end.local_rank);
  failure.consequence = outcome.consequence;
  failure.killed = WasKilled(outcome);
  failure.did_not_leave = outcome.did_not_leave;
  failure.time_ns = outcome.time_ns;
  failure.own = OwnFailure(outcome);
  return failure;
}

void Attempt::RecordReport(int i) {
  Outcome& outcome = outcomes_[i];
  const std::optional<Report> report = ReadReport(processes_[i].report);
  if (!report && !outcome.failed && options_.require_report) {
    outcome.failed = true;
    outcome.end.message = kEndedEarly;
  }
  outcome.consequence = outcome.failed && WasTold(processes_[i].report);
  if (!report || !outcome.failed || report->code == absl::StatusCode::kOk) return;
  outcome.code = report->code;
  outcome.end.message = report->message;
  const int64_t said_ns = report->time_ns > 0 ? report->time_ns : outcome.time_ns;
  outcome.consequence = report->consequence || IsAboutOthers(report->code);
  outcome.reported_before = outcome.told_to_end && !outcome.consequence && said_ns < told_to_end_ns_;
  outcome.time_ns = std::min(outcome.time_ns, said_ns);
}

AttemptResult Attempt::Result(const absl::Status& started, bool stopped) const {
  AttemptResult result;
  result.master_port = master_port_;
  result.must_end = must_end_;
  result.signal = stop_signal_;
  absl::Status status = started.ok() ? Verdict(stopped) : started;
  NameStraysThatOutlived(&status);
  if (stop_signal_ != 0 && !stopped && options_.max_restarts > 0) {
    status = WithEnding(status, absl::StrCat("; then the launcher received signal ", stop_signal_, " (",
                                             SignalName(stop_signal_), ")"));
  }
  result.resumable = Resumable();
  result.failure.status = std::move(status);
  result.failure.not_started = !started.ok() && stop_signal_ == 0 && !rank_links_.plan().formed;
  result.failure.time_ns = MonotonicNanos();
  if (const Outcome* cause = FirstCause(outcomes_)) {
    result.failure.consequence = cause->consequence;
    result.failure.killed = WasKilled(*cause);
    result.failure.time_ns = cause->time_ns;
  }
  return result;
}

// OK if all ranks succeeded.
absl::Status Attempt::Resumable() const {
  for (const Outcome& outcome : outcomes_) {
    if (!outcome.resumable) continue;
    const std::vector<Outcome> alone = {outcome};
    const std::string& start = rank_links_.plan().failed_start;
    return WithEnding(FailureStatus(alone[0], alone, absl::ZeroDuration()),
                      absl::StrCat(start.empty() ? "" : "; at its start, ", start, "; the job can be started again"));
  }
  return absl::OkStatus();
}

absl::Status Attempt::Verdict(bool stopped) const {
  if (stopped) return StoppedStatus(stop_signal_, outcomes_, patience_);
  // A rank may have reported its own error, but not have ended when the launcher's signal came.
  const Outcome* cause = FirstCause(outcomes_);
  if (!cause) return LateFailure();
  return WithLastLines(FailureStatus(*cause, outcomes_, patience_), cause->end.local_rank);
}

// With a static rendezvous, where nobody else knows: of ranks that had done all their work, and have all ended.
absl::Status Attempt::LateFailure() const {
  if (control_.nodes != RankLinks::Nodes::kStatic || !rank_links_.complete()) return absl::OkStatus();
  std::vector<std::string> kills;
  std::optional<Failure> first;  // of a rank that failed by itself
  for (const Outcome& outcome : outcomes_) {
    if (!outcome.others_go_on) continue;
    Failure failure = FailureOf(outcome);
    if (IsFromOutside(outcome.end.signal)) {
      kills.emplace_back(failure.status.message());
    } else if (!first || failure.time_ns < first->time_ns) {
      first = std::move(failure);
    }
  }
  if (first) return WithEnding(first->status, kAfterWork);
  if (!kills.empty() && options_.on_notice) options_.on_notice(absl::StrCat(absl::StrJoin(kills, "; "), kAfterWork));
  return absl::OkStatus();
}

// In the final line, unless the ranks have ended well.
void Attempt::NameStraysThatOutlived(absl::Status* status) const {
  if (not_ended_.empty()) return;
  if (!status->ok() && !must_end_) {
    *status = WithEnding(*status, absl::StrCat("; ", not_ended_));
  } else if (options_.on_notice) {
    options_.on_notice(not_ended_);
  }
}

}  // namespace lockstep::launch
