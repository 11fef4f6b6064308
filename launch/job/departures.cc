#include "lockstep/launch/job/departures.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/launch/job/membership.h"
#include "lockstep/launch/job/outcome.h"

namespace lockstep::launch {
namespace {

using AgentPhase = AgentState::Phase;

std::string LeftText(const std::string& host, const std::string& reason) {
  return absl::StrCat("host ", host, " left the job: it ", reason);
}

}  // namespace

absl::Status LeftStatus(const Leaver& leaver) {
  return CancelledBySignal(leaver.signal, LeftText(leaver.host, leaver.reason));
}

Departures::Departures(const JobState& job, std::string anchor)
    : job_(job), anchor_(std::move(anchor)), left_(job.left) {}

// A node that succeeds, and one that leaves, may vanish before the others have ended their ranks. The anchor stays
// until the job is done.
std::vector<Leaver> Departures::Update(const Agents& agents) {
  std::vector<Leaver> may_vanish;
  for (const auto& [id, agent] : agents) {
    if (agent.phase != AgentPhase::kLeaving || Find(id)) continue;
    left_.push_back({id, agent.host, agent.leaving, agent.signal});
    if (id != anchor_) may_vanish.push_back(left_.back());
  }
  for (const Member& member : job_.members) {
    const AgentState* agent = FindAgent(agents, member.agent);
    if (agent && agent->phase == AgentPhase::kSucceeded && agent->start == job_.start) {
      succeeded_.insert(member.agent);
    } else if (!agent && !HasSucceeded(member.agent) && !Find(member.agent)) {
      lost_.insert(member.agent);
    }
  }
  return may_vanish;
}

void Departures::Clear() {
  succeeded_.clear();
  lost_.clear();
  left_.clear();
}

void Departures::Forget(const std::string& agent) {
  succeeded_.erase(agent);
  lost_.erase(agent);
}

const Leaver* Departures::Find(const std::string& agent) const {
  const auto found = absl::c_find_if(left_, [&](const Leaver& left) { return left.agent == agent; });
  return found == left_.end() ? nullptr : &*found;
}

const Leaver* Departures::First(const Agents& agents) const {
  const Leaver* member = nullptr;
  for (const Leaver& left : left_) {
    if (IsNeeded(left.agent, agents)) return &left;
    if (!member && IsMember(job_, left.agent)) member = &left;
  }
  return member;
}

bool Departures::Leaves(const std::string& agent, const Agents& agents) const {
  const AgentState* state = FindAgent(agents, agent);
  return Find(agent) || IsDrained(job_, agent) || (state && !state->leaving.empty());
}

bool Departures::IsNeeded(const std::string& agent, const Agents& agents) const {
  if (agent == anchor_) return true;
  if (job_.limits.min_nodes != job_.limits.max_nodes) return false;
  const auto others = absl::c_count_if(agents, [&](const auto& other) { return !Leaves(other.first, agents); });
  return others < job_.limits.min_nodes && (job_.start == 0 || IsMember(job_, agent));
}

// A spare node that leaves changes nothing.
bool Departures::EndJob(const Agents& agents) const {
  return absl::c_any_of(left_, [&](const Leaver& left) { return IsNeeded(left.agent, agents); });
}

std::string Departures::LossOf(const Member& member, const Agents& agents) const {
  const AgentState* agent = FindAgent(agents, member.agent);
  if (const Leaver* left = Find(member.agent)) return LeftText(member.host, left->reason);
  if (!agent) return absl::StrCat("host ", member.host, " was lost");
  if (!agent->leaving.empty() && !IsDrained(job_, member.agent)) return LeftText(member.host, agent->leaving);
  if (agent->entry != member.entry || agent->phase == AgentPhase::kRunning) return "";
  if (agent->phase == AgentPhase::kFailing) return absl::StrCat("host ", member.host, ": a rank failed");
  if (agent->failure.status.ok()) return absl::StrCat("host ", member.host, " was out of reach");
  return std::string(OnHost(agent->failure.status, member.host).message());
}

absl::Status Departures::LostStatus() const {
  std::vector<std::string> hosts;
  for (const Member& member : job_.members) {
    if (IsLost(member.agent)) hosts.push_back(member.host);
  }
  if (hosts.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(HostsText(hosts), hosts.size() == 1 ? " was" : " were", " lost"));
}

}  // namespace lockstep::launch
