#include "lockstep/tools/launch/status/internal/job_status.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/printable.h"
#include "lockstep/tools/launch/internal/report_file.h"

namespace lockstep::launch::internal {
namespace {

std::string Text(absl::string_view key, absl::string_view value) {
  return absl::StrCat("\"", key, "\":", JsonString(Printable(value)));
}

std::string Number(absl::string_view key, int64_t value) { return absl::StrCat("\"", key, "\":", value); }

std::string Seconds(absl::string_view key, absl::Duration value) {
  return absl::StrFormat("\"%s\":%.3f", key, absl::ToDoubleSeconds(value));
}

std::string EncodeRank(const RankStatus& rank) {
  std::vector<std::string> fields = {Number("rank", rank.rank), Number("local_rank", rank.local_rank),
                                     Number("pid", rank.pid), Text("state", NameOf(rank.state)),
                                     Seconds("seconds_in_state", rank.in_state)};
  if (rank.state == RankStatus::State::kEnded) {
    fields.push_back(rank.signal == 0 ? Number("exit_code", rank.exit_code) : Number("signal", rank.signal));
  }
  if (rank.step) fields.push_back(Number("step", *rank.step));
  if (rank.since_step) fields.push_back(Seconds("seconds_since_step", *rank.since_step));
  if (rank.steps_per_second) fields.push_back(absl::StrFormat("\"steps_per_second\":%.4g", *rank.steps_per_second));
  return absl::StrCat("{", absl::StrJoin(fields, ","), "}");
}

std::string EncodeHost(const HostStatus& host) {
  return absl::StrCat("{", Text("host", host.host), ",", Text("address", host.address), ",",
                      Number("first_rank", host.first_rank), ",", Number("ranks", host.ranks), ",",
                      Text("state", NameOf(host.state)), "}");
}

template <typename Item>
std::string List(absl::string_view key, const std::vector<Item>& items, std::string (*encode)(const Item&)) {
  const auto append = [encode](std::string* out, const Item& item) { out->append(encode(item)); };
  return absl::StrCat("\"", key, "\":[", absl::StrJoin(items, ",", append), "]");
}

}  // namespace

absl::string_view NameOf(JobStatus::Phase phase) {
  switch (phase) {
    case JobStatus::Phase::kForming:
      return "forming";
    case JobStatus::Phase::kRunning:
      return "running";
    case JobStatus::Phase::kEnding:
      return "ending";
    case JobStatus::Phase::kPausing:
      return "pausing";
    case JobStatus::Phase::kSpare:
      return "spare";
  }
  return "";
}

absl::string_view NameOf(RankStatus::State state) {
  switch (state) {
    case RankStatus::State::kStarting:
      return "starting";
    case RankStatus::State::kRunning:
      return "running";
    case RankStatus::State::kWaiting:
      return "waiting";
    case RankStatus::State::kEnded:
      return "ended";
  }
  return "";
}

absl::string_view NameOf(HostStatus::State state) {
  switch (state) {
    case HostStatus::State::kMember:
      return "member";
    case HostStatus::State::kLeaving:
      return "leaving";
    case HostStatus::State::kLeft:
      return "left";
    case HostStatus::State::kLost:
      return "lost";
  }
  return "";
}

std::string EncodeJobStatus(const JobStatus& status) {
  std::vector<std::string> fields = {
      Text("job", status.job_id),
      Text("host", status.host),
      Number("pid", status.pid),
      Text("program", status.program),
      Text("started", absl::FormatTime(absl::RFC3339_sec, status.started, absl::UTCTimeZone())),
      Seconds("seconds", status.running),
      Seconds("grace_seconds", status.grace),
      absl::StrCat("\"meets_others\":", status.meets_others ? "true" : "false"),
      Number("min_nodes", status.min_nodes),
      Number("max_nodes", status.max_nodes),
      Text("phase", NameOf(status.phase)),
      Seconds("seconds_in_phase", status.in_phase),
      Number("generation", status.generation),
      Number("restarts", status.restarts),
      Number("max_restarts", status.max_restarts),
      List("hosts", status.hosts, EncodeHost),
      List("ranks", status.ranks, EncodeRank),
  };
  if (!status.trouble.empty()) fields.push_back(Text("trouble", status.trouble));
  if (!status.stall.empty()) fields.push_back(Text("stall", status.stall));
  if (status.ready) fields.push_back(Number("ready_hosts", *status.ready));
  return absl::StrCat("{", absl::StrJoin(fields, ","), "}");
}

}  // namespace lockstep::launch::internal
