// The nodes of a job whose ranks stay when another one fails.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/launch/job/coordinator.h"

namespace lockstep::launch {
namespace {

using AgentPhase = AgentState::Phase;

// A node that was not needed leaves even if it is needed again, and then comes as another one.
bool HasBegunToLeave(const RankPlan& plan, const Member& member) {
  const int node = plan.NodeOf(member.entry);
  return node >= 0 && (plan.nodes[node].leaves || plan.nodes[node].gone);
}

}  // namespace

// Returns whether job() has changed.
bool Coordinator::RecordRanks(const Agents& agents, absl::Time now) {
  const auto spares = absl::c_count_if(agents, [&](const auto& agent) { return IsNewcomer(agent.first, agents); });
  const bool changed =
      ranks_.Update(agents, {job_.limits.min_nodes, job_.limits.max_nodes, static_cast<int>(spares)}, now);
  LookAt(ranks_.next_look());
  if (!changed) return false;
  for (; job_.restarts < ranks_.plan().restarts; ++job_.restarts) {
    policy_.Restart(AttemptEnd::kFailed, absl::InfinitePast(), now);
    restart_times_.push_back(now);
  }
  return true;
}

bool Coordinator::StepStaying(const Agents& agents, absl::Time now) {
  ranks_.RecordLateFailures(agents);
  bool changed = false;
  if (EndIfNeededNodeLeaves(agents) || EndIfUnformedRankExits(agents)) return true;
  for (const Member& member : std::vector<Member>(job_.members)) changed |= RecordMember(member, agents, now);
  changed |= AddNewcomers(agents, now);
  changed |= RecordRanks(agents, now);
  if (changed) job_.ranks = ranks_.plan();
  if (ranks_.finished()) {
    job_.ranks = ranks_.plan();
    Finish(ranks_.LateFailure());
    return true;
  }
  if (job_.ranks.verdict.ok()) return changed;
  End(std::string(job_.ranks.verdict.message()));
  return true;
}

// If a node leaves without which the others do not go on. Whether the ranks end.
bool Coordinator::EndIfNeededNodeLeaves(const Agents& agents) {
  bool all_leave = !job_.members.empty();
  for (const Member& member : job_.members) {
    const bool leaves = departures_.Leaves(member.agent, agents);
    all_leave &= leaves;
    if (!leaves || !departures_.IsNeeded(member.agent, agents)) continue;
    End(absl::StrCat("host ", member.host, " leaves"));
    return true;
  }
  const Leaver* anchor = departures_.Find(limits_.anchor);
  if (anchor) {
    End(absl::StrCat("host ", anchor->host, ", which serves the job, leaves"));
  } else if (all_leave) {
    End("all hosts leave");
  }
  return anchor || all_leave;
}

// If a rank has exited before a generation has formed: it would do so on each start. Whether the ranks end.
bool Coordinator::EndIfUnformedRankExits(const Agents& agents) {
  if (ranks_.plan().formed) return false;
  for (const Member& member : job_.members) {
    const AgentState* agent = FindAgent(agents, member.agent);
    if (!agent || agent->entry != member.entry || !HasFailed(*agent, job_.start)) continue;
    End(absl::StrCat("a rank on host ", member.host, " failed"));
    return true;
  }
  return false;
}

bool Coordinator::RecordMember(const Member& member, const Agents& agents, absl::Time now) {
  const std::string loss = departures_.LossOf(member, agents);
  if (!loss.empty()) {
    ranks_.Lose(member, loss, now);
  } else if (!IsDrained(job_, member.agent) && !IsSurplus(member) && !HasBegunToLeave(ranks_.plan(), member)) {
    return false;
  } else if (LeavesInTime(member, now)) {
    ranks_.Leave(member);
  } else {
    ranks_.Lose(member, absl::StrCat("host ", member.host, " did not leave in time"), now);
  }
  if (!ranks_.IsGone(member)) return false;
  Remove(member.agent);
  return true;
}

// Between two steps, which may take long.
bool Coordinator::LeavesInTime(const Member& member, absl::Time now) {
  const absl::Time until = leaves_since_.emplace(member.entry, now).first->second + limits_.join_timeout;
  LookAt(until);
  return now < until;
}

// Returns whether the job has more nodes than it may: the last ones leave, and the anchor stays.
bool Coordinator::IsSurplus(const Member& member) const {
  if (!HasTooManyNodes() || member.agent == limits_.anchor) return false;
  int others = 0;
  bool is_before = true;
  for (const Member& other : job_.members) {
    is_before &= other.entry != member.entry;
    others += !IsDrained(job_, other.agent) && (is_before || other.agent == limits_.anchor);
  }
  return others >= job_.limits.max_nodes;
}

void Coordinator::Remove(const std::string& agent) {
  const auto is_it = [&](const Member& member) { return member.agent == agent; };
  job_.members.erase(std::remove_if(job_.members.begin(), job_.members.end(), is_it), job_.members.end());
  departures_.Forget(agent);
}

// A node whose agent started again may be there twice until the earlier agent is lost. One that could not execute the
// program would fail again.
bool Coordinator::IsNewcomer(const std::string& id, const Agents& agents) const {
  const AgentState& agent = agents.at(id);
  if (agent.phase != AgentPhase::kReady || IsMember(job_, id) || departures_.Leaves(id, agents) ||
      agent.failure.not_started || ranks_.IsLeftOut(id))
    return false;
  return agent.node_rank < 0 || std::none_of(job_.members.begin(), job_.members.end(), [&](const Member& member) {
           const AgentState* other = FindAgent(agents, member.agent);
           return other && other->node_rank == agent.node_rank;
         });
}

// Their processes start while the others go on.
bool Coordinator::AddNewcomers(const Agents& agents, absl::Time now) {
  bool changed = false;
  for (const auto& [id, agent] : agents) {
    const bool full = static_cast<int>(job_.members.size()) >= job_.limits.max_nodes;
    if (full || ranks_.plan().finished_members > 0 || !IsNewcomer(id, agents)) continue;
    job_.members.push_back(MemberOf(id, agent));
    ranks_.Add(job_.members.back(), now);
    changed = true;
  }
  return changed;
}

}  // namespace lockstep::launch
