#include "lockstep/launch/status/job_status_json.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/json_fields.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

struct Reply {
  std::optional<std::string> ok, error;
};

void Fields(JsonFields& json, Reply& reply) {
  json.Field("ok", reply.ok);
  json.Field("error", reply.error);
}

void Fields(JsonFields& json, RankStatus& rank) {
  json.Required("rank", rank.rank);
  json.Required("local_rank", rank.local_rank);
  json.Required("pid", rank.pid);
  json.Enum("state", rank.state, kRankStateNames);
  json.Required("seconds_in_state", rank.in_state);
  if (rank.state == RankStatus::State::kEnded) {
    json.Optional("signal", rank.signal);
    if (rank.signal == 0) json.Field("exit_code", rank.exit_code);
  }
  json.Field("step", rank.step);
  json.Field("seconds_since_step", rank.since_step);
  json.Field("steps_per_second", rank.steps_per_second);
}

void Fields(JsonFields& json, HostStatus& host) {
  json.Required("host", host.host);
  json.Required("address", host.address);
  json.Required("first_rank", host.first_rank);
  json.Required("ranks", host.ranks);
  json.Enum("state", host.state, kHostStateNames);
}

void Fields(JsonFields& json, JobStatus& job) {
  json.Required("job", job.job_id);
  json.Required("host", job.host);
  json.Required("pid", job.pid);
  json.Required("program", job.program);
  std::string started = absl::FormatTime(absl::RFC3339_sec, job.started, absl::UTCTimeZone()), error;
  json.Required("started", started);
  if (json.reads() && !absl::ParseTime(absl::RFC3339_sec, started, &job.started, &error)) json.Fail(error);
  json.Required("seconds", job.running);
  json.Required("grace_seconds", job.grace);
  json.Required("meets_others", job.meets_others);
  json.Required("min_nodes", job.min_nodes);
  json.Required("max_nodes", job.max_nodes);
  json.Enum("phase", job.phase, kPhaseNames);
  json.Required("seconds_in_phase", job.in_phase);
  json.Required("generation", job.generation);
  json.Required("restarts", job.restarts);
  json.Required("max_restarts", job.max_restarts);
  json.Required("hosts", job.hosts);
  json.Required("ranks", job.ranks);
  json.Optional("trouble", job.trouble);
  json.Optional("stall", job.stall);
  json.Field("ready_hosts", job.ready);
}

namespace {

template <typename T>
std::string Encode(const T& value) {
  JsonOptions options;
  options.printable = true;
  return WriteJson(value, options);
}

template <typename T>
absl::StatusOr<T> Decode(absl::string_view text) {
  T value;
  const absl::Status status = ReadJson(text, &value);
  if (status.ok()) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("its answer is not readable; is it of another version? ", Printable(status.message())));
}

}  // namespace

std::string EncodeJobStatus(const JobStatus& status) { return Encode(status); }

std::string EncodeReply(const absl::StatusOr<std::string>& answer) {
  Reply reply;
  (answer.ok() ? reply.ok : reply.error) = answer.ok() ? *answer : std::string(answer.status().message());
  return Encode(reply);
}

absl::StatusOr<JobStatus> DecodeJobStatus(absl::string_view text) { return Decode<JobStatus>(text); }

absl::StatusOr<std::string> DecodeReply(absl::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Reply reply, Decode<Reply>(text));
  if (reply.error) return absl::FailedPreconditionError(*reply.error);
  if (reply.ok) return *reply.ok;
  return absl::InvalidArgumentError("its answer is neither ok nor an error; is it of another version?");
}

}  // namespace lockstep::launch
