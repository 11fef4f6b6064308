#include "lockstep/tools/launch/internal/outcome.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <tuple>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace lockstep::launch {
namespace internal {
namespace {

constexpr char kFailurePayload[] = "lockstep.launch/rank_failure";
constexpr char kSignalPayload[] = "lockstep.launch/signal";

bool Before(const Outcome& a, const Outcome& b) {
  const auto order = [](const Outcome& o) {
    return std::make_tuple(o.end.signal == 0 || o.end.signal == SIGABRT, o.time_ns, o.end.local_rank);
  };
  return order(a) < order(b);
}

std::string Sentence(const RankFailure& end) {
  const std::string who = absl::StrCat("rank ", end.rank, " (local rank ", end.local_rank, ", pid ", end.pid, ")");
  const std::string how = end.signal != 0
                              ? absl::StrCat(" was killed by signal ", end.signal, " (", SignalName(end.signal), ")")
                              : absl::StrCat(" exited with code ", end.exit_code);
  return absl::StrCat(who, how, end.message.empty() ? "" : ": ", end.message);
}

struct Counts {
  int all = 0, failed_too = 0, ended = 0, killed = 0;
  std::vector<std::string> outlived;
};

// Counts every outcome but `cause`, which may be null.
Counts CountOthers(const Outcome* cause, const std::vector<Outcome>& outcomes) {
  Counts counts;
  for (const Outcome& o : outcomes) {
    if (&o == cause) continue;
    ++counts.all;
    counts.failed_too += o.failed && !o.told_to_end;
    counts.ended += o.told_to_end;
    counts.killed += o.needed_kill;
    if (o.outlived_kill) counts.outlived.push_back(absl::StrCat("rank ", o.end.rank, " (pid ", o.end.pid, ")"));
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

std::string Outlived(const Counts& counts) {
  if (counts.outlived.empty()) return "";
  return absl::StrCat("; SIGKILL did not end ", absl::StrJoin(counts.outlived, ", "));
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
    if (!outcome.end.message.empty()) return absl::StrCat("; rank ", outcome.end.rank, ": ", outcome.end.message);
  }
  return "";
}

std::string Encode(const RankFailure& f) {
  return absl::StrJoin(std::make_tuple(f.local_rank, f.rank, f.pid, f.exit_code, f.signal, f.message), " ");
}

std::optional<int> SignalOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kSignalPayload);
  int signal;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &signal)) return std::nullopt;
  return signal;
}

}  // namespace

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

const Outcome* FirstCause(const std::vector<Outcome>& outcomes) {
  const Outcome* first = nullptr;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.failed || outcome.told_to_end) continue;
    if (first == nullptr || Before(outcome, *first)) first = &outcome;
  }
  return first;
}

absl::Status FailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience) {
  const Counts counts = CountOthers(&cause, outcomes);
  const RankFailure& end = cause.end;
  absl::StatusCode code = end.signal != 0 ? absl::StatusCode::kAborted : absl::StatusCode::kUnknown;
  if (!end.message.empty() && cause.code != absl::StatusCode::kOk) code = cause.code;
  absl::Status status(code, absl::StrCat(Sentence(end), Others(counts, patience), Outlived(counts)));
  status.SetPayload(kFailurePayload, absl::Cord(Encode(end)));
  return status;
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
                                        Outlived(counts), LastWords(outcomes)));
  status.SetPayload(kSignalPayload, absl::Cord(absl::StrCat(signal)));
  return status;
}

}  // namespace internal

std::optional<RankFailure> FirstFailure(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(internal::kFailurePayload);
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
  if (const std::optional<int> signal = internal::SignalOf(status)) return 128 + *signal;
  if (const std::optional<RankFailure> failure = FirstFailure(status)) {
    if (failure->signal != 0) return 128 + failure->signal;
    return failure->exit_code > 0 ? failure->exit_code : 1;
  }
  if (absl::IsNotFound(status)) return 127;
  if (absl::IsPermissionDenied(status)) return 126;
  return 1;
}

}  // namespace lockstep::launch
