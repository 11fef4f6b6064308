#include "lockstep/launch/output/event_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/host_name.h"
#include "lockstep/base/printable.h"
#include "lockstep/launch/report/failure.h"
#include "lockstep/launch/report/report_file.h"

namespace lockstep::launch {
namespace {

std::string Text(absl::string_view key, absl::string_view value) {
  return absl::StrCat(",\"", key, "\":", JsonString(Printable(value)));
}

std::string Number(absl::string_view key, int64_t value) { return absl::StrCat(",\"", key, "\":", value); }

std::string Seconds(absl::string_view key, absl::Duration value) {
  return absl::StrFormat(",\"%s\":%.6f", key, absl::ToDoubleSeconds(value));
}

std::string Name(int attempt, const RankFailure& rank) {
  return absl::StrCat(Number("attempt", attempt), Number("rank", rank.rank), Number("local_rank", rank.local_rank),
                      Number("pid", rank.pid));
}

std::string HowItEnded(const RankFailure& end) {
  if (end.signal == 0) return Number("exit_code", end.exit_code);
  return absl::StrCat(Number("signal", end.signal), Text("signal_name", SignalName(end.signal)));
}

}  // namespace

EventLog::EventLog(const LaunchOptions& options, UniqueFd fd)
    : options_(options), fd_(std::move(fd)), host_(HostName()) {}

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Create(const LaunchOptions& options) {
  UniqueFd fd;
  if (!options.event_log.empty()) {
    fd = AboveStdio(UniqueFd(
        open(options.event_log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0666)));
    if (!fd.valid()) {
      return DescriptorError(absl::StrCat("launch: event log ", Printable(options.event_log), " cannot be opened"),
                             errno, absl::StatusCode::kFailedPrecondition);
    }
  }
  return std::unique_ptr<EventLog>(new EventLog(options, std::move(fd)));
}

void EventLog::Write(absl::string_view event, absl::string_view fields) {
  if (!fd_.valid()) return;
  const std::string time = absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone());
  const std::string line =
      absl::StrCat(torn_ ? "\n" : "", "{\"time\":\"", time, "\"", Number("monotonic_ns", MonotonicNanos()),
                   Text("event", event), Text("host", host_), fields, "}\n");
  ssize_t written;
  do {
    written = write(fd_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == line.size()) {
    torn_ = false;
    return;
  }
  const int error = written < 0 ? errno : ENOSPC;
  torn_ = torn_ || written > 0;
  if (!noticed_ && options_.on_notice) {
    options_.on_notice(
        absl::StrCat("event log ", Printable(options_.event_log), " lacks events from here on: ", strerror(error)));
  }
  noticed_ = true;
}

void EventLog::AttemptStarted(int attempt, int nnodes, int node_rank) {
  Write("attempt_started",
        absl::StrCat(Number("attempt", attempt), Text("run_id", options_.run_id), Number("nnodes", nnodes),
                     Number("node_rank", node_rank), Number("nproc_per_node", options_.nproc_per_node)));
}

void EventLog::RankStarted(int attempt, const RankFailure& rank) { Write("rank_started", Name(attempt, rank)); }

void EventLog::RankEnded(int attempt, const Outcome& outcome, int64_t started_ns) {
  const absl::Duration duration = absl::Nanoseconds(MonotonicNanos() - started_ns);
  Write("rank_ended", absl::StrCat(Name(attempt, outcome.end), HowItEnded(outcome.end), Seconds("seconds", duration),
                                   outcome.told_to_end ? ",\"told_to_end\":true" : "",
                                   outcome.end.message.empty() ? "" : Text("report", outcome.end.message)));
}

void EventLog::FirstCause(int attempt, const absl::Status& status) {
  const std::optional<RankFailure> failure = FirstFailure(status);
  if (!failure) return;
  Write("first_cause", absl::StrCat(Name(attempt, *failure), HowItEnded(*failure), Text("message", status.message())));
}

void EventLog::Restart(int attempt, absl::string_view reason, std::optional<absl::Duration> pause) {
  Write("restart",
        absl::StrCat(Number("attempt", attempt), Text("reason", reason), pause ? Seconds("pause", *pause) : ""));
}

void EventLog::Notice(absl::string_view message) { Write("notice", Text("message", message)); }

void EventLog::Generation(int64_t generation, int world_size, absl::string_view reason) {
  Write("generation", absl::StrCat(Number("generation", generation), Number("world_size", world_size),
                                   reason.empty() ? "" : Text("reason", reason)));
}

void EventLog::End(const absl::Status& status) {
  Write("end", absl::StrCat(Text("code", absl::StatusCodeToString(status.code())), Text("message", status.message())));
}

}  // namespace lockstep::launch
