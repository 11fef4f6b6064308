#include "lockstep/tools/launch/agent/internal/job_ranks.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/tools/launch/failure.h"
#include "lockstep/tools/launch/internal/outcome.h"

namespace lockstep::launch::internal {

using Kind = Membership::Decision::Kind;
using State = Membership::State;

bool Before(const NodeFailure& a, const NodeFailure& b) {
  return std::make_tuple(a.consequence, !a.killed, a.time_ns) < std::make_tuple(b.consequence, !b.killed, b.time_ns);
}

absl::Status OnHost(const absl::Status& status, const std::string& host) {
  return Annotate(status, absl::StrCat("host ", host));
}

void JobRanks::Start(const JobState& job, const std::vector<absl::Time>& restarts, absl::Time now) {
  limits_.earlier_restarts = restarts;
  failures_.clear();
  changed_ = false;
  if (Resume(job, now)) return;
  Membership::Memory memory;
  memory.generation = job.ranks.memory.generation;
  memory.restarts = job.restarts;
  membership_.emplace(limits_, std::move(memory), now);
  plan_ = RankPlan();
  plan_.start = job.generation;
  has_asks_ = true;
  for (const Member& member : job.members) Add(member, now);
  membership_->set_name([this](int slot) { return NameOf(slot); });
}

bool JobRanks::Resume(const JobState& job, absl::Time now) {
  if (job.ranks.start != job.generation || !job.ranks.memory.stays) return false;
  plan_ = job.ranks;
  membership_.emplace(limits_, plan_.memory, now);
  has_asks_ = false;
  membership_->set_name([this](int slot) { return NameOf(slot); });
  return true;
}

std::string JobRanks::NameOf(int slot) const {
  const int node = membership_->memory().slots[slot].node;
  return absl::StrCat("process ", slot - membership_->memory().nodes[node].first, " on host ", plan_.nodes[node].host);
}

// Of one that has been added. Entries are never used again.
int JobRanks::IndexOf(const Member& member) const {
  const auto is_it = [&](const RankPlan::Node& node) { return node.entry == member.entry; };
  return static_cast<int>(std::find_if(plan_.nodes.begin(), plan_.nodes.end(), is_it) - plan_.nodes.begin());
}

void JobRanks::Add(const Member& member, absl::Time now) {
  const size_t index = membership_->AddNode(member.ranks, member.spares, now);
  plan_.nodes.resize(std::max(plan_.nodes.size(), index + 1));
  RankPlan::Node node;
  node.agent = member.agent;
  node.host = member.host;
  node.entry = member.entry;
  plan_.nodes[index] = std::move(node);
  changed_ = true;
}

// A lost node explains the failures of others.
void JobRanks::Lose(const Member& member, const std::string& text, absl::Time now) {
  Membership::Cause cause;
  cause.text = text;
  cause.killed = true;
  membership_->LoseNode(IndexOf(member), cause, now);
  changed_ = true;
}

void JobRanks::Leave(const Member& member) {
  const int index = IndexOf(member);
  if (membership_->memory().nodes[index].leaves) return;
  membership_->LeaveNode(index, absl::StrCat("host ", member.host, " leaves"));
  changed_ = true;
}

bool JobRanks::IsGone(const Member& member) const { return membership_->IsGone(IndexOf(member)); }

const AgentState* JobRanks::Find(const Agents& agents, int node) const {
  const Membership::Memory::Node& slots = membership_->memory().nodes[node];
  const AgentState* agent = FindAgent(agents, plan_.nodes[node].agent);
  if (slots.gone || !agent || agent->entry != plan_.nodes[node].entry) return nullptr;
  return agent->slots.size() == static_cast<size_t>(slots.slots) ? agent : nullptr;
}

void JobRanks::TakeAsks(const Agents& agents) {
  for (size_t node = 0; node < plan_.nodes.size(); ++node) {
    const AgentState* agent = Find(agents, static_cast<int>(node));
    for (int i = 0; agent && i < static_cast<int>(agent->slots.size()); ++i) {
      membership_->SetAsk(membership_->memory().nodes[node].first + i, agent->slots[i].ask);
    }
  }
  has_asks_ = true;
}

void JobRanks::Hear(const Agents& agents, absl::Time now) {
  std::vector<Failure> failures;
  for (size_t node = 0; node < plan_.nodes.size(); ++node) {
    const AgentState* agent = Find(agents, static_cast<int>(node));
    if (!agent) continue;
    changed_ |= !kept();
    membership_->OnStays();
    HearProgress(static_cast<int>(node), *agent);
    for (int i = 0; i < static_cast<int>(agent->slots.size()); ++i) {
      const int slot = membership_->memory().nodes[node].first + i;
      if (!HearSlot(slot, agent->slots[i], now)) continue;
      if (!formed() && !agent->slots[i].failure.killed) continue;  // its agent will say that the node has failed
      Failure failure;
      failure.failure = agent->slots[i].failure;
      failure.host = plan_.nodes[node].host;
      failure.slot = slot;
      failures.push_back(std::move(failure));
    }
  }
  NoteVerdict(membership_->verdict());  // a process that ended the job may have ended since
  if (kept()) HearFailures(std::move(failures), now);
}

// What is known already changes nothing. Whether the process has failed.
bool JobRanks::HearSlot(int slot, const SlotState& state, absl::Time now) {
  const Membership::Memory::Slot& known = membership_->memory().slots[slot];
  const bool is_alive = known.state == State::kStarting || known.state == State::kReady ||
                        known.state == State::kMember || known.state == State::kDone;
  if (!is_alive || state.process != known.process) return false;
  if (!state.ends_job.empty()) membership_->OnEndJob(state.ends_job);
  if (state.done) HearDone(slot, state.all_done);
  if (state.phase == SlotState::Phase::kReady && !state.done) membership_->OnReady(slot, state.left, state.ask, now);
  if (state.phase == SlotState::Phase::kSucceeded) membership_->OnSuccess(slot);
  return state.phase == SlotState::Phase::kFailed;
}

// Another leader must know it too, since the process may end and its node go.
void JobRanks::HearDone(int slot, bool all) {
  const Membership::Memory& memory = membership_->memory();
  const bool agreed = memory.agreed, complete = memory.complete;
  membership_->OnDone(slot, all);
  changed_ |= memory.agreed != agreed || memory.complete != complete;
}

void JobRanks::NoteLateFailure(const Failure& failed) {
  const bool was_rank =
      membership_->rank(failed.slot) >= 0 || membership_->memory().slots[failed.slot].state == State::kDone;
  const std::optional<RankFailure> rank = FirstFailure(failed.failure.status);
  if (!was_rank || (rank && IsFromOutside(rank->signal))) return;
  plan_.late.Update(OnHost(failed.failure.status, failed.host));
}

absl::Status JobRanks::LateFailure() const {
  return membership_->complete() && !plan_.late.ok() ? WithEnding(plan_.late, kAfterWork) : absl::OkStatus();
}

void JobRanks::HearFailures(std::vector<Failure> failures, absl::Time now) {
  const auto before = [](const Failure& a, const Failure& b) { return Before(a.failure, b.failure); };
  std::sort(failures.begin(), failures.end(), before);
  for (const Failure& failed : failures) {
    failures_.push_back(failed);
    NoteLateFailure(failed);
    Membership::Cause cause;
    cause.text = std::string(OnHost(failed.failure.status, failed.host).message());
    cause.consequence = failed.failure.consequence;
    cause.killed = failed.failure.killed;
    cause.time_ns = failed.failure.time_ns;
    cause.exited = !failed.failure.killed;
    changed_ = true;
    if (membership_->OnFailure(failed.slot, cause, now)) continue;
    const Failure& first = *std::min_element(failures_.begin(), failures_.end(), before);
    NoteVerdict(WithEnding(OnHost(first.failure.status, first.host),
                           absl::StrCat("; all other ranks were ended", membership_->ending())));
    return;
  }
}

void JobRanks::HearProgress(int node, const AgentState& agent) {
  if (agent.progressed != membership_->generation()) return;
  const Membership::Memory::Node& slots = membership_->memory().nodes[node];
  for (int slot = slots.first; slot < slots.first + slots.slots; ++slot) membership_->OnProgress(slot, agent.step);
}

// Its node must hold a port that no generation has used.
bool JobRanks::MayBeRank0(const Agents& agents, int slot) const {
  const int node = membership_->memory().slots[slot].node;
  const AgentState* agent = Find(agents, node);
  return agent && agent->link_port != 0 && agent->link_port != plan_.nodes[node].used_port;
}

bool JobRanks::Update(const Agents& agents, int least_nodes, int most_nodes, absl::Time now) {
  using Node = Membership::Memory::Node;
  const std::vector<Node>& nodes = membership_->memory().nodes;
  const auto is_gone = [](const Node& node) { return node.gone; };
  const auto stays = [](const Node& node) { return !node.gone && !node.leaves; };
  if (!has_asks_) TakeAsks(agents);
  Hear(agents, now);
  const auto gone = absl::c_count_if(nodes, is_gone);
  membership_->NeedNodes(least_nodes, absl::c_count_if(nodes, stays) < most_nodes);
  membership_->set_may_be_rank_0([&](int slot) { return MayBeRank0(agents, slot); });
  membership_->Update(now);
  membership_->set_may_be_rank_0(nullptr);
  for (const Membership::Decision& decision : membership_->Take()) Carry(decision, agents);
  changed_ |= absl::c_count_if(nodes, is_gone) != gone;
  changed_ |= std::exchange(plan_.awaited, membership_->awaited()) != membership_->awaited();
  NoteVerdict(membership_->verdict());
  plan_.memory = membership_->memory();
  return kept() && std::exchange(changed_, false);
}

void JobRanks::Carry(const Membership::Decision& decision, const Agents& agents) {
  changed_ = true;
  switch (decision.kind) {
    case Kind::kForm:
      NoteGeneration(decision, agents);
      break;
    case Kind::kAfterStep:
    case Kind::kNow:
      plan_.order = decision.kind == Kind::kNow ? RegroupOrder::kNow : RegroupOrder::kAfterStep;
      plan_.order_reason = decision.reason;
      break;
    case Kind::kKill:
      plan_.killed = decision.slots;
      break;
    case Kind::kStart:
    case Kind::kGiveUp:
      break;  // as the memory says
  }
}

void JobRanks::NoteGeneration(const Membership::Decision& decision, const Agents& agents) {
  RankPlan::Node& first = plan_.nodes[membership_->memory().slots[decision.slots[0]].node];
  const AgentState& agent = agents.at(first.agent);
  first.used_port = agent.link_port;
  plan_.world_size = static_cast<int>(decision.slots.size());
  plan_.master_addr = agent.address;
  plan_.master_port = agent.link_port;
  plan_.reason = decision.reason;
  plan_.order = RegroupOrder::kGoOn;
  plan_.order_reason.clear();
  plan_.killed.clear();
  plan_.late = absl::OkStatus();
  failures_.clear();
}

void JobRanks::NoteVerdict(absl::Status verdict) {
  if (verdict.ok() || !plan_.verdict.ok()) return;
  plan_.verdict = std::move(verdict);
  changed_ = true;
}

}  // namespace lockstep::launch::internal
