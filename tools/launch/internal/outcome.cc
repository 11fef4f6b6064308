#include "lockstep/tools/launch/internal/outcome.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lockstep::launch {
namespace internal {
namespace {

constexpr char kFailurePayload[] = "lockstep.launch/rank_failure";
constexpr char kSignalPayload[] = "lockstep.launch/signal";
constexpr char kNotExecutedPayload[] = "lockstep.launch/not_executed";

// The exit codes of shells for programs that are not executable and not found.
constexpr int kNotExecutable = 126, kNotFound = 127;

// How many other ranks' own errors one line has.
constexpr int kMostOthersErrors = 3;

bool Before(const Outcome& a, const Outcome& b) {
  const auto order = [](const Outcome& o) {
    const bool killed = o.end.signal != 0 && o.end.signal != SIGABRT && o.end.signal != SIGPIPE;
    return std::make_tuple(o.consequence, !killed, o.time_ns, o.end.local_rank);
  };
  return order(a) < order(b);
}

bool FailedByItself(const Outcome& o) { return o.failed && (!o.told_to_end || o.reported_before); }

// What the rank reported, without its own name, which the sentence has already.
absl::string_view MessageOf(const RankFailure& end) {
  absl::string_view message = end.message;
  while (absl::ConsumePrefix(&message, absl::StrCat("rank ", end.rank, ": "))) {
  }
  return message;
}

std::string HowItEnded(const Outcome& o) {
  if (o.told_to_end) return " failed";
  if (o.end.signal == 0) return absl::StrCat(" exited with code ", o.end.exit_code);
  return absl::StrCat(" was killed by signal ", o.end.signal, " (", SignalName(o.end.signal), ")");
}

std::string Sentence(const Outcome& o) {
  const std::string who =
      absl::StrCat("rank ", o.end.rank, " (local rank ", o.end.local_rank, ", pid ", o.end.pid, ")");
  return absl::StrCat(who, HowItEnded(o), o.end.message.empty() ? "" : ": ", MessageOf(o.end));
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
    if (o.outlived_kill) counts.outlived.push_back(name);
  }
  return counts;
}

std::string ByKill(const Counts& counts, absl::Duration patience) {
  if (counts.killed == 0) return "";
  // No patience at all: somebody sent the launcher a second signal.
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

// "; rank 2: no space left": errors that are not the first and yet no consequence of it.
std::string OthersErrors(const Outcome& cause, const std::vector<Outcome>& outcomes) {
  std::string text;
  int named = 0;
  for (const Outcome& o : outcomes) {
    const bool own = &o != &cause && FailedByItself(o) && !o.consequence && !o.end.message.empty();
    if (!own || MessageOf(o.end) == MessageOf(cause.end) || named++ >= kMostOthersErrors) continue;
    absl::StrAppend(&text, "; rank ", o.end.rank, ": ", MessageOf(o.end));
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

// The last words of the lowest rank that had any: "; rank 0: saved".
std::string LastWords(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    if (!outcome.end.message.empty()) return absl::StrCat("; rank ", outcome.end.rank, ": ", MessageOf(outcome.end));
  }
  return "";
}

std::string Encode(const RankFailure& f) {
  return absl::StrJoin(std::make_tuple(f.local_rank, f.rank, f.pid, f.exit_code, f.signal, f.message), " ");
}

std::optional<int> NumberIn(const absl::Status& status, const char* payload_url) {
  const auto payload = status.GetPayload(payload_url);
  int number;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &number)) return std::nullopt;
  return number;
}

// `sentence` about `cause`, with the cause's code.
absl::Status StatusOf(const Outcome& cause, const std::string& sentence) {
  RankFailure end = cause.end;
  if (cause.told_to_end && end.signal != 0) end.signal = 0, end.exit_code = 1;  // the signal was ours
  absl::StatusCode code = end.signal != 0 ? absl::StatusCode::kAborted : absl::StatusCode::kUnknown;
  if (!end.message.empty() && cause.code != absl::StatusCode::kOk) code = cause.code;
  absl::Status status(code, sentence);
  status.SetPayload(kFailurePayload, absl::Cord(Encode(end)));
  return status;
}

}  // namespace

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

const Outcome* FirstCause(const std::vector<Outcome>& outcomes) {
  const Outcome* first = nullptr;
  for (const Outcome& outcome : outcomes) {
    if (!FailedByItself(outcome)) continue;
    if (first == nullptr || Before(outcome, *first)) first = &outcome;
  }
  return first;
}

bool TruerCauseMayCome(const std::vector<Outcome>& outcomes) {
  const Outcome* cause = FirstCause(outcomes);
  return cause != nullptr && cause->consequence && cause->code != absl::StatusCode::kDeadlineExceeded;
}

absl::Status FailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience) {
  const Counts counts = CountOthers(&cause, outcomes);
  return StatusOf(cause, absl::StrCat(Sentence(cause), Others(counts, patience), OthersErrors(cause, outcomes),
                                      StoppedAndOutlived(counts)));
}

absl::Status EarlyFailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience) {
  std::vector<std::string> running;
  for (const Outcome& o : outcomes) {
    if (!o.ended) running.push_back(absl::StrCat(o.end.rank));
  }
  return StatusOf(cause, absl::StrCat(Sentence(cause), OthersErrors(cause, outcomes), "; waiting up to ",
                                      absl::FormatDuration(patience), " for ", running.size() == 1 ? "rank " : "ranks ",
                                      absl::StrJoin(running, ", "), " to end"));
}

absl::Status StoppedStatus(int signal, const std::vector<Outcome>& outcomes, absl::Duration patience) {
  const Counts counts = CountOthers(nullptr, outcomes);
  std::string ranks;
  if (counts.ended > 0) {
    ranks = absl::StrCat("; ", counts.ended, counts.ended == 1 ? " rank was" : " ranks were", " ended",
                         ByKill(counts, patience));
  }
  absl::Status status =
      absl::CancelledError(absl::StrCat("the launcher received signal ", signal, " (", SignalName(signal), ")", ranks,
                                        StoppedAndOutlived(counts), LastWords(outcomes)));
  status.SetPayload(kSignalPayload, absl::Cord(absl::StrCat(signal)));
  return status;
}

absl::Status MarkNotExecuted(absl::Status status) {
  status.SetPayload(kNotExecutedPayload,
                    absl::Cord(absl::StrCat(absl::IsNotFound(status) ? kNotFound : kNotExecutable)));
  return status;
}

}  // namespace internal

std::optional<RankFailure> FirstFailure(const absl::Status& status) {
  const auto payload = status.GetPayload(internal::kFailurePayload);
  if (!payload) return std::nullopt;
  const std::string text(*payload);
  const std::vector<std::string> fields = absl::StrSplit(text, absl::MaxSplits(' ', 5));
  RankFailure f;
  if (fields.size() != 6 || !absl::SimpleAtoi(fields[0], &f.local_rank) || !absl::SimpleAtoi(fields[1], &f.rank) ||
      !absl::SimpleAtoi(fields[2], &f.pid) || !absl::SimpleAtoi(fields[3], &f.exit_code) ||
      !absl::SimpleAtoi(fields[4], &f.signal)) {
    return std::nullopt;
  }
  f.message = fields[5];
  return f;
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  if (const auto signal = internal::NumberIn(status, internal::kSignalPayload)) return 128 + *signal;
  if (const auto code = internal::NumberIn(status, internal::kNotExecutedPayload)) return *code;
  const std::optional<RankFailure> failure = FirstFailure(status);
  if (!failure) return 1;
  if (failure->signal != 0) return 128 + failure->signal;
  const bool is_shells = failure->exit_code == internal::kNotExecutable || failure->exit_code == internal::kNotFound;
  return failure->exit_code > 0 && !is_shells ? failure->exit_code : 1;
}

}  // namespace lockstep::launch
