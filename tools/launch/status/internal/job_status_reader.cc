#include "lockstep/tools/launch/status/internal/job_status_reader.h"

#include <exception>
#include <stdexcept>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/printable.h"
#include "nlohmann/json.hpp"

namespace lockstep::launch::internal {
namespace {

using Json = nlohmann::json;

absl::Duration SecondsFrom(const Json& json, const char* key) { return absl::Seconds(json.at(key).get<double>()); }

// The value among 0 to `last` that has this name.
template <typename Value>
Value ValueFrom(const Json& json, const char* key, Value last) {
  const std::string name = json.at(key).get<std::string>();
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (NameOf(static_cast<Value>(i)) == name) return static_cast<Value>(i);
  }
  throw std::invalid_argument(absl::StrCat("unknown ", key, " ", name));
}

HostStatus HostFrom(const Json& json) {
  HostStatus host;
  json.at("host").get_to(host.host);
  json.at("address").get_to(host.address);
  json.at("first_rank").get_to(host.first_rank);
  json.at("ranks").get_to(host.ranks);
  host.state = ValueFrom(json, "state", HostStatus::State::kLost);
  return host;
}

RankStatus RankFrom(const Json& json) {
  RankStatus rank;
  json.at("rank").get_to(rank.rank);
  json.at("local_rank").get_to(rank.local_rank);
  json.at("pid").get_to(rank.pid);
  rank.state = ValueFrom(json, "state", RankStatus::State::kEnded);
  rank.in_state = SecondsFrom(json, "seconds_in_state");
  rank.exit_code = json.value("exit_code", -1);
  rank.signal = json.value("signal", 0);
  if (json.contains("step")) rank.step = json.at("step").get<int64_t>();
  if (json.contains("seconds_since_step")) rank.since_step = SecondsFrom(json, "seconds_since_step");
  if (json.contains("steps_per_second")) rank.steps_per_second = json.at("steps_per_second").get<double>();
  return rank;
}

JobStatus JobFrom(const Json& json) {
  JobStatus job;
  json.at("job").get_to(job.job_id);
  json.at("host").get_to(job.host);
  json.at("pid").get_to(job.pid);
  json.at("program").get_to(job.program);
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_sec, json.at("started").get<std::string>(), &job.started, &error)) {
    throw std::invalid_argument(error);
  }
  job.running = SecondsFrom(json, "seconds");
  job.grace = SecondsFrom(json, "grace_seconds");
  json.at("meets_others").get_to(job.meets_others);
  json.at("min_nodes").get_to(job.min_nodes);
  json.at("max_nodes").get_to(job.max_nodes);
  job.phase = ValueFrom(json, "phase", JobStatus::Phase::kSpare);
  job.in_phase = SecondsFrom(json, "seconds_in_phase");
  job.trouble = json.value("trouble", "");
  job.stall = json.value("stall", "");
  if (json.contains("ready_hosts")) job.ready = json.at("ready_hosts").get<int>();
  json.at("generation").get_to(job.generation);
  json.at("restarts").get_to(job.restarts);
  json.at("max_restarts").get_to(job.max_restarts);
  for (const Json& host : json.at("hosts")) job.hosts.push_back(HostFrom(host));
  for (const Json& rank : json.at("ranks")) job.ranks.push_back(RankFrom(rank));
  return job;
}

absl::Status NotOurs(const std::exception& error) {
  return absl::InvalidArgumentError(
      absl::StrCat("its answer is not readable; is it of another version? ", Printable(error.what())));
}

}  // namespace

absl::StatusOr<JobStatus> DecodeJobStatus(absl::string_view text) {
  try {
    return JobFrom(Json::parse(text));
  } catch (const std::exception& error) {
    return NotOurs(error);
  }
}

absl::StatusOr<std::string> DecodeReply(absl::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (json.contains("error")) return absl::FailedPreconditionError(json.at("error").get<std::string>());
    return json.at("ok").get<std::string>();
  } catch (const std::exception& error) {
    return NotOurs(error);
  }
}

}  // namespace lockstep::launch::internal
