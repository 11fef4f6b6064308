#include "lockstep/launch/job/outcome.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <tuple>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/printable.h"
#include "lockstep/launch/job/failure.h"
#include "lockstep/launch/report/failure_payloads.h"

namespace lockstep::launch {
namespace {

// The number of other ranks' errors in one line.
constexpr int kMostOthersErrors = 3;

bool Before(const Outcome& a, const Outcome& b) {
  const auto order = [](const Outcome& o) {
    return std::make_pair(CauseOrder(o.consequence, WasKilled(o), o.time_ns), o.end.local_rank);
  };
  return order(a) < order(b);
}

bool FailedByItself(const Outcome& o) { return o.failed && !o.others_go_on && (!o.told_to_end || o.reported_before); }

// The rank's report, without the rank's name, which the sentence contains already.
absl::string_view MessageOf(const RankFailure& end) {
  absl::string_view message = end.message;
  while (absl::ConsumePrefix(&message, absl::StrCat("rank ", end.rank, ": "))) {
  }
  return message;
}

std::string HowItEnded(const Outcome& o) {
  if (o.told_to_end) return "failed";
  if (o.end.signal == 0) return absl::StrCat("exited with code ", o.end.exit_code);
  return absl::StrCat("was killed by signal ", o.end.signal, " (", SignalName(o.end.signal), ")");
}

// "exited with code 3: no space left"
std::string WhatItDid(const Outcome& o) {
  return absl::StrCat(HowItEnded(o), o.end.message.empty() ? "" : ": ", MessageOf(o.end));
}

struct Counts {
  int all = 0, failed_too = 0, ended = 0, killed = 0;
  std::vector<std::string> stopped, outlived;
};

// Counts every outcome but `cause`, which may be null.
Counts CountOthers(const Outcome* cause, const std::vector<Outcome>& outcomes) {
  Counts counts;
  for (const Outcome& o : outcomes) {
    if (&o == cause) continue;
    const std::string name = absl::StrCat("rank ", o.end.rank, " (pid ", o.end.pid, ")");
    ++counts.all;
    counts.failed_too += FailedByItself(o);
    counts.ended += o.told_to_end && !FailedByItself(o);
    counts.killed += o.needed_kill && !FailedByItself(o);
    if (o.stopped) counts.stopped.push_back(name);
    if (o.outlived_kill) {
      counts.outlived.push_back(
          absl::StrCat("rank ", o.end.rank, " (pid ", o.end.pid, ", state ", std::string(1, o.process_state), ")"));
    }
  }
  return counts;
}

std::string ByKill(const Counts& counts, absl::Duration patience) {
  if (counts.killed == 0) return "";
  // The launcher got a second signal, so it did not wait at all.
  const std::string after = patience == absl::ZeroDuration()
                                ? "by SIGKILL"
                                : absl::StrCat("by SIGKILL after ", absl::FormatDuration(patience));
  if (counts.killed == counts.ended) return absl::StrCat(" ", after);
  return absl::StrCat(", ", counts.killed, " of them ", after);
}

std::string StoppedAndOutlived(const Counts& counts) {
  std::string text;
  if (!counts.stopped.empty()) {
    absl::StrAppend(&text, "; ", absl::StrJoin(counts.stopped, ", "), counts.stopped.size() == 1 ? " was" : " were",
                    " stopped");
  }
  if (!counts.outlived.empty()) {
    absl::StrAppend(&text, "; SIGKILL did not end ", absl::StrJoin(counts.outlived, ", "));
  }
  return text;
}

// "no space left", or "" if there is nothing to say about `other`. A rank that reported nothing is named only if it
// ended before the cause, since then it may be the true cause.
std::string OthersError(const Outcome& cause, const Outcome& other) {
  const absl::string_view message = MessageOf(other.end);
  if (!message.empty()) return message == MessageOf(cause.end) ? "" : absl::StrCat(": ", message);
  if (other.time_ns >= cause.time_ns) return "";
  const absl::Duration before = absl::Nanoseconds(cause.time_ns - other.time_ns);
  return absl::StrCat(" ", HowItEnded(other), " ", absl::FormatDuration(absl::Ceil(before, absl::Milliseconds(1))),
                      " before");
}

// "; rank 2: no space left": errors of other ranks that are not consequences of the first.
std::string OthersErrors(const Outcome& cause, const std::vector<Outcome>& outcomes) {
  std::string text;
  int named = 0;
  for (const Outcome& o : outcomes) {
    if (&o == &cause || !FailedByItself(o) || o.consequence) continue;
    const std::string error = OthersError(cause, o);
    if (error.empty() || named++ >= kMostOthersErrors) continue;
    absl::StrAppend(&text, "; rank ", o.end.rank, error);
  }
  return text;
}

// "; the other rank was ended", "; of the other 3 ranks 1 failed too and 2 were ended".
std::string Others(const Counts& counts, absl::Duration patience) {
  const auto were = [](int n) { return n == 1 ? " was" : " were"; };
  if (counts.failed_too + counts.ended == 0) return "";
  const std::string subject = counts.all == 1 ? "the other rank" : absl::StrCat("the other ", counts.all, " ranks");
  const std::string how = ByKill(counts, patience);
  if (counts.ended == counts.all) return absl::StrCat("; ", subject, were(counts.all), " ended", how);
  if (counts.failed_too == counts.all) return absl::StrCat("; ", subject, " failed too");
  std::vector<std::string> parts;
  if (counts.failed_too > 0) parts.push_back(absl::StrCat(counts.failed_too, " failed too"));
  if (counts.ended > 0) parts.push_back(absl::StrCat(counts.ended, were(counts.ended), " ended", how));
  return absl::StrCat("; of ", subject, " ", absl::StrJoin(parts, " and "));
}

// The report of the lowest rank that made one: "; rank 0: saved".
std::string LastWords(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    if (!outcome.end.message.empty()) return absl::StrCat("; rank ", outcome.end.rank, ": ", MessageOf(outcome.end));
  }
  return "";
}

std::string Encode(const RankFailure& f) {
  return absl::StrJoin(std::make_tuple(f.local_rank, f.rank, f.pid, f.exit_code, f.signal, f.message), " ");
}

// `sentence` about `cause`, with the cause's code.
absl::Status StatusOf(const Outcome& cause, const std::string& sentence) {
  RankFailure end = cause.end;
  if (cause.told_to_end && end.signal != 0) end.signal = 0, end.exit_code = 1;  // the launcher's signal
  absl::StatusCode code = end.signal != 0 ? absl::StatusCode::kAborted : absl::StatusCode::kUnknown;
  if (!end.message.empty() && cause.code != absl::StatusCode::kOk) code = cause.code;
  absl::Status status(code, sentence);
  status.SetPayload(kFailurePayload, absl::Cord(Encode(end)));
  return status;
}

}  // namespace

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

std::string EndText(const Outcome& o) {
  const std::string who = o.end.rank < 0 ? "a new process" : absl::StrCat("rank ", o.end.rank);
  return absl::StrCat(who, " (local rank ", o.end.local_rank, ", pid ", o.end.pid, ") ", WhatItDid(o));
}

std::optional<StepFailure> OwnFailure(const Outcome& o) {
  // SIGPIPE comes from a peer that is gone.
  const bool is_own = o.failed && (o.did_not_leave || (!IsFromOutside(o.end.signal) && o.end.signal != SIGPIPE));
  if (o.end.rank < 0 || !is_own) return std::nullopt;
  return StepFailure{-1, o.end.rank, WhatItDid(o)};
}

bool WasKilled(const Outcome& outcome) {
  const int signal = outcome.end.signal;
  return signal != 0 && signal != SIGABRT && signal != SIGPIPE && !outcome.did_not_leave;
}

bool IsFromOutside(int signal) {
  for (const int own : {0, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPIPE, SIGSYS, SIGTRAP}) {
    if (signal == own) return false;
  }
  return true;
}

const Outcome* FirstCause(const std::vector<Outcome>& outcomes) {
  const Outcome* first = nullptr;
  for (const Outcome& outcome : outcomes) {
    if (!FailedByItself(outcome)) continue;
    if (!first || Before(outcome, *first)) first = &outcome;
  }
  return first;
}

bool IsCertain(const Outcome& cause) {
  const int signal = cause.end.signal;
  const bool sent_to_launcher = signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
  return WasKilled(cause) && !cause.consequence && !sent_to_launcher;
}

bool TruerCauseMayCome(const std::vector<Outcome>& outcomes) {
  const Outcome* cause = FirstCause(outcomes);
  return cause && cause->consequence && cause->code != absl::StatusCode::kDeadlineExceeded;
}

absl::Status FailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience) {
  const Counts counts = CountOthers(&cause, outcomes);
  return StatusOf(cause, absl::StrCat(EndText(cause), Others(counts, patience), OthersErrors(cause, outcomes),
                                      StoppedAndOutlived(counts)));
}

absl::Status EarlyFailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience) {
  std::vector<std::string> running;
  for (const Outcome& o : outcomes) {
    if (!o.ended) running.push_back(absl::StrCat(o.end.rank));
  }
  return StatusOf(cause, absl::StrCat(EndText(cause), OthersErrors(cause, outcomes), "; waiting up to ",
                                      absl::FormatDuration(patience), " for ", running.size() == 1 ? "rank " : "ranks ",
                                      absl::StrJoin(running, ", "), " to end"));
}

absl::Status CancelledBySignal(int signal, absl::string_view message) {
  absl::Status status = absl::CancelledError(message);
  status.SetPayload(kSignalPayload, absl::Cord(absl::StrCat(signal)));
  return status;
}

bool IsStop(const absl::Status& status) { return status.GetPayload(kSignalPayload).has_value(); }

absl::Status StoppedStatus(int signal, const std::vector<Outcome>& outcomes, absl::Duration patience) {
  const Counts counts = CountOthers(nullptr, outcomes);
  std::string ranks;
  if (counts.ended > 0) {
    ranks = absl::StrCat("; ", counts.ended, counts.ended == 1 ? " rank was" : " ranks were", " ended",
                         ByKill(counts, patience));
  }
  return CancelledBySignal(signal, absl::StrCat("the launcher received signal ", signal, " (", SignalName(signal), ")",
                                                ranks, StoppedAndOutlived(counts), LastWords(outcomes)));
}

void AddStderr(const std::string& file, const std::vector<std::string>& lines, absl::Status* status) {
  status->SetPayload(kStderrPayload,
                     absl::Cord(absl::StrCat(Printable(file), lines.empty() ? "" : "\n", absl::StrJoin(lines, "\n"))));
}

absl::Status MarkNotExecuted(absl::Status status) {
  status.SetPayload(kNotExecutedPayload,
                    absl::Cord(absl::StrCat(absl::IsNotFound(status) ? kNotFound : kNotExecutable)));
  return status;
}

}  // namespace lockstep::launch
