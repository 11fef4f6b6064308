#include "lockstep/launch/job/membership.h"

#include <cstddef>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/job/next_generation.h"
#include "lockstep/launch/job/outcome.h"

namespace lockstep::launch {
namespace {

// If no member is left, how long the first new process waits for the others, so that they start as one generation.
constexpr absl::Duration kWaitForAll = absl::Seconds(30);
// A generation that lasts longer has not failed at its start, even if it completes no step.
constexpr absl::Duration kShortGeneration = absl::Seconds(10);
constexpr int kMostBarrenGenerations = 10;

using Phase = RankPlan::Phase;

}  // namespace

absl::Status OnHost(const absl::Status& status, const std::string& host) {
  return host.empty() ? status : Annotate(status, absl::StrCat("host ", host));
}

// Nodes.

void Membership::Start(const JobState& job, const std::vector<absl::Time>& made, absl::Time now) {
  const bool resumes = job.ranks.start == job.start && job.ranks.stays;
  plan_ = resumes ? job.ranks : RankPlan();
  plan_.restarts = job.restarts;
  cuts_ = CutHosts(plan_.cuts, now);
  failures_.clear();
  formed_at_ = regroups_since_ = now;
  may_kill_ = plan_.phase == Phase::kRegrouping;
  asks_.assign(plan_.slots.size(), NotAsked());
  std::vector<absl::Time> times = made;
  times.resize(job.restarts, now);
  restarts_.Start(plan_.slots.size(), std::move(times), now);
  changed_ = false;
  if (resumes) return;
  plan_.generation = job.ranks.generation;
  plan_.start = job.start;
  for (const Member& member : job.members) Add(member, now);
}

JoinOptions Membership::NotAsked() {
  JoinOptions ask;
  ask.leave_timeout = absl::ZeroDuration();
  return ask;
}

// It gets the slots of a node that is gone, if they owe nothing.
void Membership::Add(const Member& member, absl::Time now) {
  const int slots = member.ranks + member.spares;
  const auto is_free = [&](const RankPlan::Node& old) {
    const auto first = plan_.slots.begin() + old.first;
    return old.gone && old.slots == slots &&
           std::none_of(first, first + old.slots, [](const Slot& slot) { return slot.owes; });
  };
  const auto old = absl::c_find_if(plan_.nodes, is_free);
  const int index = static_cast<int>(old - plan_.nodes.begin());
  RankPlan::Node node;
  node.first = static_cast<int>(old == plan_.nodes.end() ? plan_.slots.size() : old->first);
  node.slots = slots;
  node.ranks = member.ranks;
  node.agent = member.agent;
  node.host = member.host;
  node.entry = member.entry;
  if (old == plan_.nodes.end()) {
    plan_.nodes.push_back(std::move(node));
    plan_.slots.resize(plan_.slots.size() + slots);
    asks_.resize(plan_.slots.size());
  } else {
    *old = std::move(node);
  }
  for (int slot = plan_.nodes[index].first; slot < plan_.nodes[index].first + slots; ++slot) {
    plan_.slots[slot] = Slot();
    plan_.slots[slot].node = index;
    asks_[slot] = NotAsked();
    restarts_.OnStart(slot, now);
  }
  changed_ = true;
}

// The process of this slot is no more, and no other one takes its place.
void Membership::Drop(int slot) {
  Slot& process = plan_.slots[slot];
  if (process.state == State::kFinished) return;
  process.owes |= plan_.IsOfLastGeneration(process);
  process.state = State::kLost;
  process.rank = process.local_rank = -1;
}

void Membership::DropNode(RankPlan::Node* node) {
  node->gone = changed_ = true;
  for (int slot = node->first; slot < node->first + node->slots; ++slot) Drop(slot);
}

// A lost node explains the failures of others.
void Membership::Lose(const Member& member, const std::string& cause, absl::Time now) {
  const int index = plan_.NodeOf(member.entry);
  if (plan_.nodes[index].gone) return;
  const bool had_members = plan_.HasMembers(index);
  if (!plan_.formed) regroups_since_ = now;  // another node may come
  DropNode(&plan_.nodes[index]);
  if (!had_members) return;
  Failure loss;
  loss.status = absl::UnavailableError(cause);
  loss.killed = true;
  RecordCause(loss);
  if (!UpdateComplete()) BreakOrEnd(cause, now);
}

void Membership::Leave(const Member& member) {
  LeaveNode(plan_.NodeOf(member.entry), absl::StrCat("host ", member.host, " leaves"));
}

void Membership::LeaveNode(int node, const std::string& reason) {
  RankPlan::Node& leaver = plan_.nodes[node];
  if (leaver.gone || std::exchange(leaver.leaves, true)) return;
  changed_ = true;
  if (!plan_.HasMembers(node)) {
    DropLeavingNodes();
  } else if (plan_.phase == Phase::kRunning && plan_.order == RegroupOrder::kGoOn && plan_.finished_members == 0) {
    Order(RegroupOrder::kAfterStep, reason);
  }
}

// Once none of their processes is a member.
void Membership::DropLeavingNodes() {
  for (size_t i = 0; i < plan_.nodes.size(); ++i) {
    RankPlan::Node& node = plan_.nodes[i];
    if (!node.gone && node.leaves && !plan_.HasMembers(static_cast<int>(i))) DropNode(&node);
  }
}

// The state of the agent of a node that has said something of its processes, which run, or null.
const AgentState* Membership::Find(const Agents& agents, int index) const {
  const AgentState* agent = FindEvenIfEnded(agents, index);
  return agent && Runs(*agent) ? agent : nullptr;
}

const AgentState* Membership::FindEvenIfEnded(const Agents& agents, int index) const {
  const RankPlan::Node& node = plan_.nodes[index];
  const AgentState* agent = FindAgent(agents, node.agent);
  if (node.gone || !agent || agent->entry != node.entry) return nullptr;
  return agent->slots.size() == static_cast<size_t>(node.slots) ? agent : nullptr;
}

std::string Membership::NameOf(int slot) const {
  const RankPlan::Node& node = plan_.nodes[plan_.slots[slot].node];
  return absl::StrCat("process ", slot - node.first, node.host.empty() ? "" : " on host ", node.host);
}

// Returns whether the others must know of a change. They do not while no process stays.
bool Membership::Update(const Agents& agents, const NeededNodes& needed, absl::Time now) {
  Record(agents, now);
  LeaveOutCutHosts(agents, needed, now);
  next_look_ = absl::InfiniteFuture();
  const std::string awaited = std::exchange(plan_.awaited, "");
  if (plan_.verdict.ok() && !plan_.complete && !finished()) Decide(agents, needed, now);
  changed_ |= plan_.awaited != awaited;
  plan_.cuts = cuts_.memory();
  return plan_.stays && std::exchange(changed_, false);
}

void Membership::Decide(const Agents& agents, const NeededNodes& needed, absl::Time now) {
  StartAwaited(needed.least, now);
  if (plan_.phase == Phase::kRegrouping) MarkLate(now);
  DropLeavingNodes();
  if (plan_.phase != Phase::kRunning && plan_.SlotsIn(State::kMember).empty()) TryToForm(agents, needed, now);
}

// Members must leave the generation.
void Membership::Order(RegroupOrder order, const std::string& reason) {
  plan_.order_reason = reason;
  if (plan_.SlotsIn(State::kMember).empty()) return;
  plan_.order = order;
  changed_ = true;
}

void Membership::Regroup(absl::Time now) {
  plan_.phase = Phase::kRegrouping;
  regroups_since_ = now;
  may_kill_ = true;
}

// The generation has failed. Whether the next one may do better.
bool Membership::Break(const std::string& text, absl::Time now) {
  const bool runs = plan_.phase == Phase::kRunning;
  if (runs) plan_.barren = plan_.progressed || now - formed_at_ >= kShortGeneration ? 0 : plan_.barren + 1;
  if (runs) Regroup(now);
  Order(RegroupOrder::kNow, text);
  return !runs || plan_.barren < kMostBarrenGenerations;
}

void Membership::BreakOrEnd(const std::string& text, absl::Time now) {
  if (!Break(text, now)) End(absl::AbortedError(absl::StrCat(plan_.Reason(), BarrenText())));
}

std::string Membership::BarrenText() const {
  return absl::StrCat("; the last ", plan_.barren, " generations ended before they completed a step");
}

// The first verdict counts.
void Membership::End(const absl::Status& verdict) {
  changed_ |= plan_.verdict.ok();
  plan_.verdict.Update(verdict);
}

// Returns whether ranks that are left are about to complete a step.
bool Membership::OthersGoOn(int least_nodes) const {
  if (plan_.finished_members > 0 || (plan_.phase == Phase::kRunning && plan_.progressed)) return false;
  std::vector<int> others = plan_.SlotsIn(State::kMember), all = others;
  for (const int ready : plan_.SlotsIn(State::kReady)) {
    all.push_back(ready);
    if (plan_.slots[ready].rank >= 0) others.push_back(ready);
  }
  return !others.empty() && static_cast<int>(others.size()) >= LeastRanks(asks_, others) &&
         plan_.NodesOf(all) >= least_nodes;
}

void Membership::StartAwaited(int least_nodes, absl::Time now) {
  for (const int slot : plan_.SlotsIn(State::kAwaited)) {
    Slot& process = plan_.slots[slot];
    if (!plan_.MayStart(process)) continue;
    const absl::Time start = restarts_.StartOf(slot), head_start_ends = restarts_.HeadStartEnds(slot);
    if (start > now || (head_start_ends > now && OthersGoOn(least_nodes))) {
      LookAt(std::max(start, head_start_ends));
      continue;
    }
    process.state = State::kStarting;
    process.late = false;
    ++process.process;
    restarts_.OnStart(slot, now);
    changed_ = true;
  }
}

// Members that have had the longest time for which one of them has asked.
void Membership::MarkLate(absl::Time now) {
  const std::vector<int> late = plan_.SlotsIn(State::kMember);
  if (late.empty() || !may_kill_) return;
  absl::Duration longest;
  for (const int slot : plan_.members) longest = std::max(longest, asks_[slot].leave_timeout);
  if (now < regroups_since_ + longest) return LookAt(regroups_since_ + longest);
  may_kill_ = false;
  for (const int slot : late) plan_.slots[slot].late = changed_ = true;
}

// The nodes that are there, in the order of their first ranks in the last generation.
std::vector<int> Membership::NodesByRank() const {
  std::vector<int> nodes, order;
  for (const int slot : plan_.members) nodes.push_back(plan_.slots[slot].node);
  for (size_t node = 0; node < plan_.nodes.size(); ++node) nodes.push_back(static_cast<int>(node));
  for (const int node : nodes) {
    const bool is_there = !plan_.nodes[node].gone && !plan_.nodes[node].leaves;
    if (is_there && !absl::c_linear_search(order, node)) order.push_back(node);
  }
  return order;
}

// Records the silence of hosts that are members, as ranks that have left the last generation report it.
void Membership::RecordSilence(const Agents& agents) {
  for (size_t node = 0; node < plan_.nodes.size(); ++node) {
    const AgentState* agent = Find(agents, static_cast<int>(node));
    if (!agent) continue;
    for (const SlotState& slot : agent->slots) {
      if (slot.phase != SlotState::Phase::kReady || slot.left != plan_.generation) continue;
      for (size_t other = 0; other < plan_.nodes.size(); ++other) {
        const AgentState* peer = other == node ? nullptr : Find(agents, static_cast<int>(other));
        if (!peer || !absl::c_linear_search(slot.ask.silent_hosts, peer->address)) continue;
        cuts_.Record(plan_.nodes[node].agent, plan_.nodes[other].agent);
      }
    }
  }
}

// Once all ranks have left the last generation, and have said which hosts did not answer.
void Membership::LeaveOutCutHosts(const Agents& agents, const NeededNodes& needed, absl::Time now) {
  changed_ |= cuts_.Update([&](const std::string& agent) { return agents.count(agent) != 0; }, now);
  const bool is_decided = cuts_decided_ == plan_.generation;
  if (plan_.phase != Phase::kRegrouping || plan_.finished_members > 0 || is_decided) return;
  RecordSilence(agents);
  if (!cuts_.has_news() || !plan_.SlotsIn(State::kMember).empty()) return;
  cuts_decided_ = plan_.generation;
  std::vector<CutHosts::Host> hosts;
  const std::vector<int> nodes = NodesByRank();
  for (const int node : nodes) {
    const AgentState* agent = FindAgent(agents, plan_.nodes[node].agent);
    hosts.push_back(
        {plan_.nodes[node].agent, absl::StrCat(plan_.nodes[node].host, " (", agent ? agent->address : "gone", ")")});
  }
  const std::set<std::string> out = cuts_.Decide(hosts, needed.least, needed.spares, now);
  for (const int node : nodes) {
    if (out.count(plan_.nodes[node].agent) != 0) LeaveNode(node, "");
  }
  changed_ = true;
}

// Rank 0's node must hold a port that no generation has used.
void Membership::TryToForm(const Agents& agents, const NeededNodes& needed, absl::Time now) {
  NextGeneration next = NextOf(plan_, asks_, needed.least);
  if (!next.missing.empty()) return WaitForMore(next.missing, needed.most, now);
  if (next.slots.empty() || WaitsForAll(next.slots, now)) return;
  const int node = plan_.slots[next.slots[0]].node;
  const AgentState* first = Find(agents, node);
  if (!first || first->link_port == 0 || first->link_port == plan_.nodes[node].used_port) return;
  Form(std::move(next.slots), *first);
  formed_at_ = now;
}

bool Membership::WaitsForAll(const std::vector<int>& slots, absl::Time now) {
  const bool has_survivor = absl::c_any_of(slots, [this](int slot) { return plan_.slots[slot].rank >= 0; });
  if (!plan_.formed || has_survivor || !plan_.SomebodyComes()) return false;
  LookAt(regroups_since_ + kWaitForAll);
  return now < regroups_since_ + kWaitForAll;
}

void Membership::WaitForMore(const std::string& number, int most_nodes, absl::Time now) {
  const absl::Time until = regroups_since_ + limits_.wait_for_ranks;
  LookAt(until);
  const std::string start = plan_.failed_start.empty() ? "" : absl::StrCat("; at its start, ", plan_.failed_start);
  const std::string reason = plan_.Reason(), before = absl::StrCat(start, reason.empty() ? "" : "; before, ", reason);
  const auto nodes = absl::c_count_if(plan_.nodes, [](const auto& node) { return !node.gone && !node.leaves; });
  const bool somebody_comes = plan_.SomebodyComes();
  if (!somebody_comes && (nodes >= most_nodes || plan_.finished_members > 0)) {
    End(absl::FailedPreconditionError(absl::StrCat(number, ", and no other one comes", before)));
  } else if (now >= until) {
    End(absl::DeadlineExceededError(
        absl::StrCat(number, " after ", absl::FormatDuration(limits_.wait_for_ranks), before)));
  } else if (!somebody_comes) {
    plan_.awaited = absl::StrCat(number, "; the ranks wait for others, for ",
                                 absl::FormatDuration(limits_.wait_for_ranks), " at most", before);
  }
}

// The first failure, or else that of a rank that was stuck after it: the others may be consequences.
std::optional<StepFailure> Membership::OwnFailure() const {
  if (plan_.causes.empty()) return plan_.error;
  if (plan_.causes[0].own) return plan_.causes[0].own;
  const auto stuck =
      absl::c_find_if(plan_.causes, [](const Failure& cause) { return cause.did_not_leave && cause.own; });
  return stuck == plan_.causes.end() ? std::nullopt : stuck->own;
}

void Membership::Form(std::vector<int> members, const AgentState& first) {
  plan_.reason = plan_.Reason();
  plan_.failure = OwnFailure();
  for (Slot& slot : plan_.slots) {
    slot.rank = -1;
    slot.owes = slot.late = false;  // the new generation does what was to be done
  }
  for (size_t i = 0; i < members.size(); ++i) {
    Slot& slot = plan_.slots[members[i]];
    slot.state = State::kMember;
    slot.rank = static_cast<int>(i);
    if (slot.local_rank < 0) slot.local_rank = FreeLocalRank(plan_, members[i]);
  }
  ++plan_.generation;
  if (!std::exchange(plan_.formed, true)) restarts_.OnFirstGeneration();
  plan_.phase = Phase::kRunning;
  plan_.nodes[plan_.slots[members[0]].node].used_port = first.link_port;
  plan_.members = std::move(members);
  plan_.master_addr = first.address;
  plan_.master_port = first.link_port;
  ForgetLastGeneration();
  changed_ = true;
}

void Membership::ForgetLastGeneration() {
  plan_.order = RegroupOrder::kGoOn;
  plan_.order_reason.clear();
  plan_.causes.clear();
  plan_.failure_count = 0;
  plan_.error.reset();
  plan_.failed_start.clear();
  plan_.progressed = plan_.agreed = plan_.resumes = false;
  plan_.late = absl::OkStatus();
  failures_.clear();
  may_kill_ = false;
}

}  // namespace lockstep::launch
