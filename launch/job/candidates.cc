#include "lockstep/launch/job/candidates.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::launch {

std::vector<std::string> Candidates(const JobState& job, const Agents& agents) {
  constexpr size_t kLast = std::numeric_limits<size_t>::max();
  std::map<std::string, size_t> before;  // the node ranks of the generation before
  for (size_t i = 0; i < job.members.size(); ++i) before[job.members[i].agent] = i;
  const auto key = [&](const std::string& id, const AgentState& agent) {
    const auto earlier = before.find(id);
    return std::make_tuple(agent.node_rank >= 0 ? static_cast<size_t>(agent.node_rank) : kLast,
                           earlier == before.end() ? kLast : earlier->second, agent.host, id);
  };
  std::vector<std::tuple<size_t, size_t, std::string, std::string>> order;
  for (const auto& [id, agent] : agents) {
    if (agent.phase == AgentState::Phase::kReady && !IsDrained(job, id)) order.push_back(key(id, agent));
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> ids;
  for (size_t i = 0; i < order.size(); ++i) {
    // A node whose agent started again may be there twice until the earlier agent is lost.
    const bool twice = i > 0 && std::get<0>(order[i]) != kLast && std::get<0>(order[i]) == std::get<0>(order[i - 1]);
    if (!twice) ids.push_back(std::get<3>(order[i]));
  }
  return ids;
}

absl::Status CheckNodeRanks(const JobState& job, const Agents& agents) {
  std::map<int, std::string> hosts;
  for (const auto& [id, agent] : agents) {
    if (agent.node_rank < 0 || job.start > 0) continue;
    if (agent.node_rank >= job.limits.max_nodes) {
      return absl::InvalidArgumentError(absl::StrCat("host ", agent.host, " has node_rank ", agent.node_rank,
                                                     ", but there are at most ", NodesText(job.limits.max_nodes)));
    }
    const auto [other, is_new] = hosts.emplace(agent.node_rank, agent.host);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat("node_rank ", agent.node_rank, " is used twice, on host ",
                                                   other->second, " and on host ", agent.host,
                                                   "; give each node a rank of its own, or none of them a rank"));
  }
  return absl::OkStatus();
}

absl::Status NotEnough(const JobState& job, const Agents& agents, absl::Duration join_timeout) {
  std::vector<std::string> there, missing;
  std::set<int> node_ranks;
  for (const std::string& id : Candidates(job, agents)) {
    there.push_back(agents.at(id).host);
    node_ranks.insert(agents.at(id).node_rank);
  }
  for (const Member& member : job.members) {
    if (agents.count(member.agent) == 0) missing.push_back(member.host);
  }
  std::string text = absl::StrCat(there.size(), " of ", NodesText(job.limits.min_nodes), " came within ",
                                  absl::FormatDuration(join_timeout));
  if (!there.empty()) absl::StrAppend(&text, ": ", HostsText(there));
  if (!missing.empty()) absl::StrAppend(&text, "; missing: ", HostsText(missing));
  std::vector<std::string> ranks;
  for (int rank = 0; rank < job.limits.min_nodes && !node_ranks.empty() && *node_ranks.begin() >= 0; ++rank) {
    if (node_ranks.count(rank) == 0) ranks.push_back(absl::StrCat(rank));
  }
  if (!ranks.empty() && ranks.size() <= 16) absl::StrAppend(&text, "; missing: node_rank ", absl::StrJoin(ranks, ", "));
  if (!job.reason.empty()) absl::StrAppend(&text, "; before, ", job.reason);
  return absl::DeadlineExceededError(text);
}

}  // namespace lockstep::launch
