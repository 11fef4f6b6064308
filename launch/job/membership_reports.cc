// Reads the agents' texts into Membership.

#include <algorithm>
#include <cstddef>
#include <functional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/job/membership.h"
#include "lockstep/launch/job/next_generation.h"
#include "lockstep/launch/job/outcome.h"
#include "lockstep/launch/report/failure.h"

namespace lockstep::launch {
namespace {

// Failures of ranks that one line names.
constexpr size_t kMostCauses = 3;
// A process that fails so often before it is ready will always do so.
constexpr int kMostFailedStarts = 5;

using Phase = RankPlan::Phase;

}  // namespace

// A fact that is known already changes nothing.
void Membership::Record(const Agents& agents, absl::Time now) {
  for (size_t node = 0; node < plan_.nodes.size(); ++node) {
    const AgentState* agent = Find(agents, static_cast<int>(node));
    if (!agent) continue;
    changed_ |= !std::exchange(plan_.stays, true);
    RecordProgress(static_cast<int>(node), *agent);
    ForEachProcess(*agent, plan_.nodes[node], [&](int slot, const SlotState& state) { RecordSlot(slot, state, now); });
  }
  for (const SlotFailure& failure : NewFailures(agents, /*even_if_ended=*/false)) RecordFailure(failure, now);
}

// Calls `record` with each slot of this node whose process is the one that the agent speaks of.
void Membership::ForEachProcess(const AgentState& agent, const RankPlan::Node& node,
                                const std::function<void(int slot, const SlotState& state)>& record) const {
  for (size_t i = 0; i < agent.slots.size(); ++i) {
    const int slot = node.first + static_cast<int>(i);
    if (IsAlive(plan_.slots[slot]) && agent.slots[i].process == plan_.slots[slot].process) record(slot, agent.slots[i]);
  }
}

// Before() others first. `even_if_ended`: also on nodes whose processes have been ended since.
std::vector<Membership::SlotFailure> Membership::NewFailures(const Agents& agents, bool even_if_ended) const {
  std::vector<SlotFailure> failures;
  for (size_t index = 0; index < plan_.nodes.size(); ++index) {
    const int i = static_cast<int>(index);
    const AgentState* agent = even_if_ended ? FindEvenIfEnded(agents, i) : Find(agents, i);
    if (!agent) continue;
    const RankPlan::Node& node = plan_.nodes[index];
    ForEachProcess(*agent, node, [&](int slot, const SlotState& state) {
      const bool counts = plan_.formed || state.failure.killed;  // else its agent will say that the node has failed
      if (state.phase != SlotState::Phase::kFailed || !counts) return;
      failures.push_back({slot, state.failure, state.unfit});
      failures.back().failure.status = OnHost(state.failure.status, node.host);
    });
  }
  absl::c_sort(failures, [](const SlotFailure& a, const SlotFailure& b) { return Before(a.failure, b.failure); });
  return failures;
}

void Membership::RecordLateFailures(const Agents& agents) {
  const bool had_failed = !plan_.late.ok();
  for (const SlotFailure& failure : NewFailures(agents, /*even_if_ended=*/true)) RecordLateFailure(failure);
  changed_ |= had_failed != !plan_.late.ok();
}

bool Membership::IsAlive(const Slot& slot) {
  return slot.state == State::kStarting || slot.state == State::kReady || slot.state == State::kMember ||
         slot.state == State::kDone;
}

void Membership::RecordSlot(int slot, const SlotState& state, absl::Time now) {
  if (!state.ends_job.empty()) End(absl::AbortedError(state.ends_job));
  if (state.done) OnDone(slot, state.all_done);
  if (state.phase == SlotState::Phase::kReady) asks_[slot] = state.ask;
  if (state.phase == SlotState::Phase::kReady && !state.done) OnReady(slot, state, now);
  if (state.phase == SlotState::Phase::kSucceeded) OnSuccess(slot);
}

void Membership::RecordProgress(int node, const AgentState& agent) {
  const bool is_new = agent.progressed == plan_.generation && agent.step > plan_.step;
  if (!is_new || plan_.CountOnNode(plan_.SlotsIn(State::kMember), node) == 0) return;
  plan_.step = agent.step;
  plan_.progressed = true;
  plan_.barren = 0;
}

// Processes that do what they must.

// A process waits for a generation.
void Membership::OnReady(int slot, const SlotState& state, absl::Time now) {
  Slot& process = plan_.slots[slot];
  // A process that joins again because its time was over may have got the generation meanwhile.
  if (process.state == State::kMember && state.left != plan_.generation) return;
  const bool had_done = process.state == State::kDone;
  const bool all_had_done = had_done && (plan_.complete || plan_.agreed);
  if (had_done) GoOnAfterWork(now);
  const bool leaves = process.state == State::kMember;
  const bool is_new = process.state == State::kStarting || (had_done && !leaves);
  process.state = State::kReady;
  process.failed_starts = 0;
  if (leaves && !plan_.error) plan_.error = state.ask.failure;
  if (plan_.phase == Phase::kRunning && leaves) OnLeave(process, state.ask, now);
  if (plan_.phase == Phase::kRunning && is_new) OnNewcomer(slot);
  if (all_had_done) may_kill_ = false;  // the others may do something else before they ask
}

// A member leaves the generation: as it should after a step, or because of a failure, which may be seen later.
void Membership::OnLeave(const Slot& member, const JoinOptions& ask, absl::Time now) {
  if (plan_.order == RegroupOrder::kAfterStep && ask.reason.empty()) return Regroup(now);
  const std::string why = ask.reason.empty() ? "" : absl::StrCat(": ", ask.reason);
  BreakOrEnd(absl::StrCat("rank ", member.rank, " left generation ", plan_.generation, why), now);
}

// Unless it is a spare.
void Membership::OnNewcomer(int slot) {
  const std::vector<int> running = plan_.SlotsIn(State::kMember);
  const int index = plan_.slots[slot].node;
  const RankPlan::Node& node = plan_.nodes[index];
  const bool is_spare = plan_.CountOnNode(running, index) >= node.ranks || running.size() >= MostRanks(asks_, running);
  if (plan_.order != RegroupOrder::kGoOn || node.leaves || is_spare || plan_.finished_members > 0) return;
  Order(RegroupOrder::kAfterStep, absl::StrCat(NameOf(slot), " is ready"));
}

// `all`: and so have all members of its generation. Another leader must know it too, since the process may end and its
// node go.
void Membership::OnDone(int slot, bool all) {
  Slot& process = plan_.slots[slot];
  if (process.state != State::kMember || plan_.resumes) return;
  process.state = State::kDone;
  ++plan_.finished_members;
  changed_ |= all && !plan_.agreed;
  plan_.agreed |= all;
  UpdateComplete();
}

void Membership::OnSuccess(int slot) {
  Slot& process = plan_.slots[slot];
  if (process.state == State::kMember) ++plan_.finished_members;
  process.owes &= process.state != State::kMember && process.state != State::kDone;
  process.state = State::kFinished;
  UpdateComplete();
}

// A process whose work was done asks for a generation: there is more to do, also for the others.
void Membership::GoOnAfterWork(absl::Time now) {
  plan_.complete = plan_.agreed = false;
  plan_.resumes = true;
  plan_.finished_members = static_cast<int>(plan_.SlotsIn(State::kFinished).size());
  for (Slot& slot : plan_.slots) {
    if (slot.state == State::kDone && slot.rank >= 0) slot.state = State::kMember;
  }
  for (const int slot : plan_.SlotsIn(State::kAwaited)) {
    if (!CountRestart(slot, /*was_starting=*/false, now)) plan_.slots[slot].state = State::kGivenUp;
  }
}

// Returns whether the job is complete. A member that fails before it can say that its work is done has done it all the
// same, if another one says so of all. Only one that is left without having said so may have to do it again.
bool Membership::UpdateComplete() {
  const auto has_done = [this](int slot) {
    const Slot& process = plan_.slots[slot];
    return process.state == State::kDone || process.state == State::kFinished ||
           (plan_.agreed && !plan_.IsOfLastGeneration(process));
  };
  const bool complete = plan_.complete || (plan_.formed && absl::c_all_of(plan_.members, has_done));
  changed_ |= complete && !std::exchange(plan_.complete, complete);
  if (!complete) return false;
  for (Slot& slot : plan_.slots) slot.owes = false;
  return true;
}

bool Membership::finished() const {
  const auto has_ended = [](const Slot& s) { return s.state == State::kFinished || s.state == State::kLost; };
  if (!plan_.formed) return !plan_.SlotsIn(State::kFinished).empty() && absl::c_all_of(plan_.slots, has_ended);
  return plan_.verdict.ok() && (plan_.complete || plan_.finished_members > 0) &&
         absl::c_none_of(plan_.slots, [this](const Slot& s) {
           return s.owes || s.state == State::kDone || plan_.IsOfLastGeneration(s);
         });
}

// Processes that fail.

void Membership::RecordFailure(const SlotFailure& failed, absl::Time now) {
  failures_.push_back(failed.failure);
  RecordLateFailure(failed);
  changed_ = true;
  if (!plan_.verdict.ok() || RecordEnd(failed, now)) return;
  const Failure& first = *absl::c_min_element(failures_, Before);
  End(WithEnding(first.status, absl::StrCat("; all other ranks were ended", *plan_.ending)));
}

// If its rank failed by itself.
void Membership::RecordLateFailure(const SlotFailure& failed) {
  const Slot& process = plan_.slots[failed.slot];
  const std::optional<RankFailure> rank = FirstFailure(failed.failure.status);
  const bool was_rank = process.rank >= 0 || process.state == State::kDone;
  if (was_rank && !(rank && IsFromOutside(rank->signal))) plan_.late.Update(failed.failure.status);
}

absl::Status Membership::LateFailure() const {
  return plan_.complete && !plan_.late.ok() ? WithEnding(plan_.late, kAfterWork) : absl::OkStatus();
}

// Returns whether the others go on without it. If not, plan_.ending says why.
bool Membership::RecordEnd(const SlotFailure& failed, absl::Time now) {
  const std::string text(failed.failure.status.message());
  Slot& process = plan_.slots[failed.slot];
  const bool was_done = process.state == State::kDone, was_starting = process.state == State::kStarting;
  const bool was_member = process.state == State::kMember || (was_done && process.rank >= 0);
  process.owes |= plan_.IsOfLastGeneration(process);
  process.state = was_done && !was_member ? State::kFinished : State::kAwaited;
  if (UpdateComplete()) {
    if (was_done || was_member) RecordCause(failed.failure);
    process.rank = process.local_rank = -1;
    return true;
  }
  if (process.state == State::kFinished) return true;  // others have done its work again
  if (was_member) {
    RecordCause(failed.failure);
    if (!Break(text, now)) {
      plan_.ending = BarrenText();
      return false;
    }
  }
  if (!failed.unfit && !CountRestart(failed.slot, was_starting, now)) {
    plan_.ending = restarts_.Ending();
    return false;
  }
  process.failed_starts += was_starting;
  if (was_starting) plan_.failed_start = text;
  process.rank = process.local_rank = -1;
  if (failed.unfit || process.failed_starts == kMostFailedStarts) process.state = State::kGivenUp;
  if (!failed.unfit) restarts_.Await(failed.slot, was_member, now);
  return true;
}

bool Membership::CountRestart(int slot, bool was_starting, absl::Time now) {
  const bool may = restarts_.Count(slot, was_starting, asks_, now);
  plan_.restarts += may;
  return may;
}

// The cause that was seen first stays the first of causes that are alike.
void Membership::RecordCause(const Failure& cause) {
  std::vector<Failure>& causes = plan_.causes;
  const auto place = causes.insert(std::upper_bound(causes.begin(), causes.end(), cause, Before), cause);
  place->status = absl::Status(cause.status.code(), cause.status.message());  // the payloads are the leader's to return
  if (causes.size() > kMostCauses) causes.pop_back();
  ++plan_.failure_count;
}

}  // namespace lockstep::launch
