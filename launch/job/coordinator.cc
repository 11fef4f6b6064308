#include "lockstep/launch/job/coordinator.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/job/candidates.h"
#include "lockstep/launch/job/outcome.h"

namespace lockstep::launch {
namespace {

using AgentPhase = AgentState::Phase;

// Returns whether ranks of `start` run on this node, or will, since it has not noticed yet that it ends.
bool HasRanks(const AgentState& agent, int64_t start) {
  return agent.start == start && (Runs(agent) || agent.phase == AgentPhase::kSucceeded);
}

// Returns whether this node has ended its ranks since the rendezvous was out of its reach.
bool WasOutOfReach(const AgentState& agent, int64_t start) {
  return agent.phase == AgentPhase::kReady && agent.start == start && !HasFailed(agent, start);
}

Membership::Limits RankLimitsOf(const JobLimits& limits) {
  Membership::Limits ranks;
  ranks.restarts.max_restarts = limits.max_restarts;
  ranks.restarts.window = limits.restart_window;
  ranks.restarts.head_start = limits.head_start;
  ranks.wait_for_ranks = limits.join_timeout;
  return ranks;
}

}  // namespace

Coordinator::Coordinator(const JobLimits& limits, JobState last, absl::Time now, std::vector<absl::Time> restarts)
    : limits_(limits),
      job_(std::move(last)),
      restart_times_(std::move(restarts)),
      policy_(limits.max_restarts, limits.restart_window),
      ranks_(RankLimitsOf(limits)),
      departures_(job_, limits.anchor),
      flag_check_(limits.host, limits.flags),
      forming_since_(now),
      formed_(now) {
  if (job_.limits.number == 0) job_.limits = {0, limits.min_nodes, limits.max_nodes};
  restart_times_.resize(job_.restarts, now);
  for (const absl::Time made : restart_times_) policy_.Restart(AttemptEnd::kFailed, absl::InfinitePast(), made);
  if (job_.phase == JobState::Phase::kRunning) ranks_.Start(job_, restart_times_, now);
}

// An agent that is refused is as if it were not there.
bool Coordinator::Update(const Agents& agents, absl::Time now) {
  const bool changed = RecordPrograms(agents);
  const bool are_there = absl::c_any_of(job_.strangers, [&](const auto& one) { return agents.count(one.agent) != 0; });
  if (!are_there) return Decide(agents, now) || changed;
  Agents others = agents;
  for (const Stranger& stranger : job_.strangers) others.erase(stranger.agent);
  return Decide(others, now) || changed;
}

bool Coordinator::Decide(const Agents& agents, absl::Time now) {
  bool changed = false;
  for (;;) {
    next_look_ = absl::InfiniteFuture();
    changed |= RecordNodes(agents);
    changed |= RecordDrains(agents);
    changed |= RecordResize(agents);
    changed |= RecordFlags(agents);
    if (!Step(agents, now)) return changed;
    changed = true;
  }
}

bool Coordinator::Step(const Agents& agents, absl::Time now) {
  switch (job_.phase) {
    case JobState::Phase::kForming:
      return StepForming(agents, now);
    case JobState::Phase::kRunning:
      return StepRunning(agents, now);
    case JobState::Phase::kEnding:
      return StepEnding(agents, now);
    case JobState::Phase::kDone:
      return false;
  }
  return false;
}

void Coordinator::LookAt(absl::Time time) { next_look_ = std::min(next_look_, time); }

// Returns whether job() changed.
bool Coordinator::RecordNodes(const Agents& agents) {
  const std::vector<Leaver> left = departures_.Update(agents);
  job_.left.insert(job_.left.end(), left.begin(), left.end());
  return !left.empty();
}

// Only agents that are there: what names others is a mistake, and must not make the decision grow. Whether job()
// changed.
bool Coordinator::RecordDrains(const Agents& agents) {
  bool changed = false;
  for (const auto& [id, agent] : agents) {
    for (const std::string& drained : agent.drains) {
      if (agents.count(drained) == 0 || IsDrained(job_, drained)) continue;
      job_.drained.push_back(drained);
      changed = true;
    }
  }
  return changed;
}

// An agent that asked before it saw the last change asks for nothing. Whether job() changed.
bool Coordinator::RecordResize(const Agents& agents) {
  bool changed = false;
  for (const auto& [id, agent] : agents) {
    const bool is_valid = agent.resize.min_nodes > 0 && agent.resize.min_nodes <= agent.resize.max_nodes;
    if (!is_valid || agent.resize.number <= job_.limits.number) continue;
    job_.limits = agent.resize;
    changed = true;
  }
  return changed;
}

bool Coordinator::RecordFlags(const Agents& agents) {
  const std::string& line = flag_check_.Check(agents);
  if (line == job_.flags) return false;
  job_.flags = line;
  return true;
}

// Until a generation has formed, the job is what the launcher that leads starts. Later another launcher may lead, of
// another job too. Whether job() changed.
bool Coordinator::RecordPrograms(const Agents& agents) {
  const bool is_new = job_.start == 0 && !(job_.program == limits_.program);
  if (is_new) job_.program = limits_.program;
  std::vector<Stranger> strangers;
  for (const auto& [id, agent] : agents) {
    if (!limits_.same_program || IsMember(job_, id)) continue;
    std::string why = ProgramDifference(agent.host, agent.program, job_.program);
    if (!why.empty()) strangers.push_back({id, std::move(why)});
  }
  // Who has left is named until another one comes: an agent looks at the job at any time later, and says who was refused.
  if (strangers.empty() && !is_new) return false;
  const auto is_same = [](const Stranger& a, const Stranger& b) { return a.agent == b.agent; };
  const bool changed = is_new || !absl::c_equal(strangers, job_.strangers, is_same);
  job_.strangers = std::move(strangers);
  return changed;
}

bool Coordinator::MayForm(const Agents& agents, int candidates, absl::Time now) {
  if (candidates < job_.limits.min_nodes) {
    enough_since_ = absl::InfiniteFuture();
    return false;
  }
  // It ends the job as soon as it has seen that it is drained.
  if (IsDrained(job_, limits_.anchor)) return false;
  // All that still end their ranks belong to the next generation too. What an agent says that has not seen the last
  // generation is too old: that one may have used its port.
  for (const auto& [id, agent] : agents) {
    if (agent.phase == AgentPhase::kLeaving) continue;
    if (agent.phase != AgentPhase::kReady || agent.start < job_.start) return false;
  }
  if (now < hold_until_) {
    LookAt(hold_until_);
    return false;
  }
  if (candidates >= job_.limits.max_nodes || job_.start > 0) return true;
  enough_since_ = std::min(enough_since_, now);
  LookAt(enough_since_ + limits_.last_call);
  return now >= enough_since_ + limits_.last_call;
}

bool Coordinator::StepForming(const Agents& agents, absl::Time now) {
  if (const absl::Status status = CheckNodeRanks(job_, agents); !status.ok()) {
    Finish(status);
    return true;
  }
  // All nodes have told why the ranks would start again. That is not why the job ends.
  if (departures_.EndJob(agents)) {
    Finish(LeftStatus(*departures_.First(agents)));
    return true;
  }
  const std::vector<std::string> candidates = Candidates(job_, agents);
  if (MayForm(agents, static_cast<int>(candidates.size()), now)) {
    Form(agents, candidates, now);
    return true;
  }
  LookAt(forming_since_ + limits_.join_timeout);
  if (now < forming_since_ + limits_.join_timeout) return false;
  Finish(NotEnough(job_, agents, limits_.join_timeout));
  return true;
}

void Coordinator::Form(const Agents& agents, const std::vector<std::string>& candidates, absl::Time now) {
  job_.members.clear();
  job_.left.clear();
  job_.lost.clear();
  for (const std::string& id : candidates) {
    if (static_cast<int>(job_.members.size()) == job_.limits.max_nodes) break;
    job_.members.push_back(MemberOf(id, agents.at(id)));
  }
  ++job_.start;
  job_.phase = JobState::Phase::kRunning;
  departures_.Clear();
  enough_since_ = newcomer_since_ = absl::InfiniteFuture();
  formed_ = now;
  leaves_since_.clear();
  ranks_.Start(job_, restart_times_, now);
}

Member Coordinator::MemberOf(const std::string& id, const AgentState& agent) {
  Member member;
  member.agent = id;
  member.entry = ++job_.entries;
  member.host = agent.host;
  member.address = agent.address;
  member.port = agent.port;
  member.ranks = agent.ranks;
  member.spares = agent.spares;
  return member;
}

// The host of a node that has been there for long enough to take part; "" if there is none.
std::string Coordinator::Newcomer(const Agents& agents, absl::Time now) {
  const bool full = static_cast<int>(job_.members.size()) >= job_.limits.max_nodes;
  const auto newcomer = absl::c_find_if(agents, [&](const auto& agent) { return IsNewcomer(agent.first, agents); });
  if (full || newcomer == agents.end() || departures_.succeeded() > 0) {
    newcomer_since_ = absl::InfiniteFuture();
    return "";
  }
  newcomer_since_ = std::min(newcomer_since_, now);
  LookAt(newcomer_since_ + limits_.newcomer_wait);
  return now >= newcomer_since_ + limits_.newcomer_wait ? newcomer->second.host : "";
}

bool Coordinator::StepRunning(const Agents& agents, absl::Time now) {
  if (ranks_.plan().stays) return StepStaying(agents, now);
  if (RecordRanks(agents, now)) {
    job_.ranks = ranks_.plan();
    return true;
  }
  if (departures_.succeeded() == static_cast<int>(job_.members.size())) {
    Finish(absl::OkStatus());
    return true;
  }
  for (const Member& member : job_.members) {
    const AgentState* agent = FindAgent(agents, member.agent);
    if (departures_.IsLost(member.agent)) {
      End(absl::StrCat("host ", member.host, " was lost"));
    } else if ((departures_.Find(member.agent) || IsDrained(job_, member.agent)) &&
               !departures_.HasSucceeded(member.agent)) {
      End(absl::StrCat("host ", member.host, " leaves"));
    } else if (agent && HasFailed(*agent, job_.start)) {
      End(absl::StrCat("a rank on host ", member.host, " failed"));
    } else if (agent && WasOutOfReach(*agent, job_.start)) {
      End(OutOfReachText(agents));
    } else {
      continue;
    }
    return true;
  }
  // A member that serves the others has been looked at above.
  if (const Leaver* anchor = departures_.Find(limits_.anchor); anchor && !IsMember(job_, anchor->agent)) {
    End(absl::StrCat("host ", anchor->host, ", which serves the job, leaves"));
    return true;
  }
  if (HasTooManyNodes() && departures_.succeeded() == 0) {
    End(absl::StrCat("the job now has at most ", NodesText(job_.limits.max_nodes)));
    return true;
  }
  const std::string newcomer = Newcomer(agents, now);
  if (newcomer.empty()) return false;
  End(absl::StrCat("host ", newcomer, " can take part"));
  return true;
}

// As many members as have said so.
std::string Coordinator::OutOfReachText(const Agents& agents) const {
  std::vector<std::string> hosts;
  for (const Member& member : job_.members) {
    const AgentState* agent = FindAgent(agents, member.agent);
    if (agent && WasOutOfReach(*agent, job_.start)) hosts.push_back(member.host);
  }
  return absl::StrCat(HostsText(hosts), hosts.size() == 1 ? " was" : " were", " out of reach");
}

void Coordinator::End(std::string reason) {
  job_.phase = JobState::Phase::kEnding;
  job_.reason = std::move(reason);
}

// A member's text may be from before this generation, or from before it entered again, and one of its ranks may have
// failed first since. The member says more when it has seen the end of the generation, whether it has started its ranks
// or not.
bool Coordinator::StepEnding(const Agents& agents, absl::Time now) {
  for (const Member& member : job_.members) {
    const AgentState* agent = FindAgent(agents, member.agent);
    if (!agent || agent->phase == AgentPhase::kLeaving) continue;
    if (HasRanks(*agent, job_.start) || agent->entry < member.entry) return false;
  }
  if (job_.ranks.start == job_.start && !job_.ranks.verdict.ok()) {
    Finish(Verdict(agents));
    return true;
  }
  bool not_started = false;
  absl::Status failure = FailureOfNodes(agents, &not_started);
  if (!failure.ok() && !IsStop(failure)) {
    Fail(failure, not_started, now);
  } else if (departures_.EndJob(agents)) {
    Finish(std::move(failure));
  } else {
    Regroup(failure.ok() ? job_.reason : std::string(failure.message()), now);
  }
  return true;
}

// Why ranks cannot go on that stay. The launcher of a job of one node, which has no name, also says what became of the
// others.
absl::Status Coordinator::Verdict(const Agents& agents) const {
  const RankPlan& plan = job_.ranks;
  const AgentState* agent = job_.members.empty() ? nullptr : FindAgent(agents, job_.members[0].agent);
  const bool is_alone = agent && agent->host.empty();
  if (!plan.ending || !is_alone || agent->failure.status.ok()) return plan.verdict;
  return WithEnding(agent->failure.status, *plan.ending);
}

// Why the generation ended: OK if it was only because of a newcomer, and Cancelled if a node left.
absl::Status Coordinator::FailureOfNodes(const Agents& agents, bool* not_started) const {
  const AgentState* first = nullptr;
  for (const auto& [id, agent] : agents) {
    if (!HasFailed(agent, job_.start) || agent.failure.status.ok()) continue;
    if (!first || Before(agent.failure, first->failure)) first = &agent;
  }
  const Leaver* const leaver = departures_.First(agents);
  absl::Status lost = departures_.LostStatus();
  if (first && (lost.ok() || first->failure.not_started)) {
    if (not_started) *not_started = first->failure.not_started;
    if (!first->failure.consequence || !leaver) {
      return WithEnding(OnHost(first->failure.status, first->host), OtherHostsText());
    }
  }
  if (!lost.ok() || !leaver) return lost;
  return LeftStatus(*leaver);
}

std::string Coordinator::OtherHostsText() const {
  const size_t others = job_.members.size() - 1;
  if (job_.members.size() < 2) return "";
  if (others == 1) return "; the ranks of the other host were ended";
  return absl::StrCat("; the ranks of the other ", others, " hosts were ended");
}

void Coordinator::Fail(const absl::Status& failure, bool not_started, absl::Time now) {
  const AttemptEnd end = not_started ? AttemptEnd::kNotStarted : AttemptEnd::kFailed;
  if (!policy_.Restart(end, formed_, now)) {
    Finish(WithEnding(failure, policy_.Ending(end)));
    return;
  }
  ++job_.restarts;
  restart_times_.push_back(now);
  hold_until_ = now + policy_.Pause();
  Regroup(absl::StrCat(failure.message(), "; ", policy_.Announcement()), now);
}

void Coordinator::Regroup(std::string reason, absl::Time now) {
  job_.phase = JobState::Phase::kForming;
  job_.reason = std::move(reason);
  job_.lost.assign(departures_.lost().begin(), departures_.lost().end());
  forming_since_ = now;
}

void Coordinator::Finish(absl::Status result) {
  job_.phase = JobState::Phase::kDone;
  job_.result = std::move(result);
}

}  // namespace lockstep::launch
