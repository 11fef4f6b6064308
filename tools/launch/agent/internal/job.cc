#include "lockstep/tools/launch/agent/internal/job.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <stdexcept>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace lockstep::launch::internal {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostHosts = 8;  // named in one message

// Texts may hold any bytes, which JSON cannot.
std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json ToJson(const absl::Status& status) {
  Json payloads = Json::object();
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    payloads[std::string(url)] = absl::Base64Escape(std::string(payload));
  });
  return {{"code", status.raw_code()}, {"message", std::string(status.message())}, {"payloads", payloads}};
}

absl::Status StatusFrom(const Json& json) {
  absl::Status status(static_cast<absl::StatusCode>(json.at("code").get<int>()), json.at("message").get<std::string>());
  for (const auto& [url, escaped] : json.at("payloads").items()) {
    std::string payload;
    if (absl::Base64Unescape(escaped.get<std::string>(), &payload)) status.SetPayload(url, absl::Cord(payload));
  }
  return status;
}

// Enumerations are written as numbers, which must be below the number of their values.
template <typename Phase>
Phase PhaseFrom(const Json& json, Phase last) {
  const int phase = json.at("phase").get<int>();
  if (phase < 0 || phase > static_cast<int>(last)) throw std::invalid_argument("unknown phase");
  return static_cast<Phase>(phase);
}

Json ToJson(const NodeLimits& limits) {
  return {{"number", limits.number}, {"min_nodes", limits.min_nodes}, {"max_nodes", limits.max_nodes}};
}

NodeLimits LimitsFrom(const Json& json) {
  NodeLimits limits;
  json.at("number").get_to(limits.number);
  json.at("min_nodes").get_to(limits.min_nodes);
  json.at("max_nodes").get_to(limits.max_nodes);
  return limits;
}

Json ToJson(const Member& member) {
  return {{"agent", member.agent},
          {"host", member.host},
          {"address", member.address},
          {"port", member.port},
          {"ranks", member.ranks}};
}

Member MemberFrom(const Json& json) {
  Member member;
  json.at("agent").get_to(member.agent);
  json.at("host").get_to(member.host);
  json.at("address").get_to(member.address);
  json.at("port").get_to(member.port);
  json.at("ranks").get_to(member.ranks);
  return member;
}

AgentState AgentFrom(const Json& json, int64_t received_ns) {
  AgentState state;
  json.at("host").get_to(state.host);
  json.at("address").get_to(state.address);
  json.at("port").get_to(state.port);
  json.at("node_rank").get_to(state.node_rank);
  json.at("ranks").get_to(state.ranks);
  state.phase = PhaseFrom(json, AgentState::Phase::kLeaving);
  json.at("generation").get_to(state.generation);
  json.at("leaving").get_to(state.leaving);
  json.at("signal").get_to(state.signal);
  json.at("drains").get_to(state.drains);
  state.resize = LimitsFrom(json.at("resize"));
  if (json.contains("failure")) {
    const Json& failure = json.at("failure");
    state.failure.status = StatusFrom(failure.at("status"));
    failure.at("not_started").get_to(state.failure.not_started);
    failure.at("consequence").get_to(state.failure.consequence);
    failure.at("killed").get_to(state.failure.killed);
    state.failure.time_ns = received_ns - failure.at("age_ns").get<int64_t>();
  }
  return state;
}

JobState JobFrom(const Json& json) {
  JobState state;
  state.phase = PhaseFrom(json, JobState::Phase::kDone);
  json.at("generation").get_to(state.generation);
  json.at("restarts").get_to(state.restarts);
  json.at("reason").get_to(state.reason);
  json.at("left").get_to(state.left);
  json.at("drained").get_to(state.drained);
  state.limits = LimitsFrom(json.at("limits"));
  state.result = StatusFrom(json.at("result"));
  for (const Json& member : json.at("members")) state.members.push_back(MemberFrom(member));
  return state;
}

absl::Status NotOurs(absl::string_view what, const std::exception& error) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is not readable: ", error.what()));
}

}  // namespace

std::string EncodeAgent(const AgentState& state, int64_t now_ns) {
  Json json = {{"host", state.host},
               {"address", state.address},
               {"port", state.port},
               {"node_rank", state.node_rank},
               {"ranks", state.ranks},
               {"phase", static_cast<int>(state.phase)},
               {"generation", state.generation},
               {"leaving", state.leaving},
               {"signal", state.signal},
               {"drains", state.drains},
               {"resize", ToJson(state.resize)}};
  if (!state.failure.status.ok()) {
    json["failure"] = {{"status", ToJson(state.failure.status)},
                       {"not_started", state.failure.not_started},
                       {"consequence", state.failure.consequence},
                       {"killed", state.failure.killed},
                       {"age_ns", now_ns - state.failure.time_ns}};
  }
  return Dump(json);
}

std::string EncodeJob(const JobState& state) {
  Json members = Json::array();
  for (const Member& member : state.members) members.push_back(ToJson(member));
  return Dump({{"phase", static_cast<int>(state.phase)},
               {"generation", state.generation},
               {"restarts", state.restarts},
               {"reason", state.reason},
               {"left", state.left},
               {"drained", state.drained},
               {"limits", ToJson(state.limits)},
               {"result", ToJson(state.result)},
               {"members", members}});
}

absl::StatusOr<AgentState> DecodeAgent(absl::string_view text, int64_t received_ns) {
  try {
    return AgentFrom(Json::parse(text), received_ns);
  } catch (const std::exception& error) {
    return NotOurs("an agent's state", error);
  }
}

absl::StatusOr<JobState> DecodeJob(absl::string_view text) {
  try {
    return JobFrom(Json::parse(text));
  } catch (const std::exception& error) {
    return NotOurs("the job's state", error);
  }
}

bool Contains(const std::vector<std::string>& agents, const std::string& id) {
  return std::find(agents.begin(), agents.end(), id) != agents.end();
}

std::string HostsText(const std::vector<std::string>& hosts) {
  if (hosts.size() == 1) return absl::StrCat("host ", hosts[0]);
  const size_t named = std::min(hosts.size(), hosts.size() > kMostHosts + 1 ? kMostHosts : hosts.size() - 1);
  const std::string first = absl::StrJoin(hosts.begin(), hosts.begin() + named, ", ");
  if (named + 1 == hosts.size()) return absl::StrCat("hosts ", first, " and ", hosts.back());
  return absl::StrCat("hosts ", first, " and ", hosts.size() - named, " more");
}

}  // namespace lockstep::launch::internal
