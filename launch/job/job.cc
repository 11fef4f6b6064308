#include "lockstep/launch/job/job.h"

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostHosts = 8;  // named in one message

}  // namespace

const AgentState* FindAgent(const Agents& agents, const std::string& id) {
  const auto found = agents.find(id);
  return found == agents.end() ? nullptr : &found->second;
}

bool Runs(const AgentState& agent) {
  return agent.phase == AgentState::Phase::kRunning || agent.phase == AgentState::Phase::kFailing;
}

bool HasFailed(const AgentState& agent, int64_t start) {
  return agent.start == start && (agent.phase == AgentState::Phase::kFailing || !agent.failure.status.ok());
}

const Stranger* FindStranger(const JobState& state, const std::string& agent) {
  const auto found =
      absl::c_find_if(state.strangers, [&](const Stranger& stranger) { return stranger.agent == agent; });
  return found == state.strangers.end() ? nullptr : &*found;
}

bool HasLeft(const JobState& state, const std::string& agent) {
  return absl::c_any_of(state.left, [&](const Leaver& leaver) { return leaver.agent == agent; });
}

bool IsDrained(const JobState& state, const std::string& agent) { return absl::c_linear_search(state.drained, agent); }

int NodeRankOf(const JobState& state, const std::string& agent) {
  const auto found = absl::c_find_if(state.members, [&](const Member& member) { return member.agent == agent; });
  return found == state.members.end() ? -1 : static_cast<int>(found - state.members.begin());
}

std::string RangeText(const NodeLimits& limits, absl::string_view between) {
  if (limits.min_nodes == limits.max_nodes) return absl::StrCat(limits.max_nodes);
  return absl::StrCat(limits.min_nodes, between, limits.max_nodes);
}

std::string NodesText(int nodes) { return absl::StrCat(nodes, nodes == 1 ? " node" : " nodes"); }

std::string HostsText(const std::vector<std::string>& hosts) {
  if (hosts.size() == 1) return absl::StrCat("host ", hosts[0]);
  const size_t named = std::min(hosts.size(), hosts.size() > kMostHosts + 1 ? kMostHosts : hosts.size() - 1);
  const std::string first = absl::StrJoin(hosts.begin(), hosts.begin() + named, ", ");
  if (named + 1 == hosts.size()) return absl::StrCat("hosts ", first, " and ", hosts.back());
  return absl::StrCat("hosts ", first, " and ", hosts.size() - named, " more");
}

}  // namespace lockstep::launch
