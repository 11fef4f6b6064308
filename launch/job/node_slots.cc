#include "lockstep/launch/job/node_slots.h"

#include <cstddef>

namespace lockstep::launch {

using Kind = NodeSlots::Action::Kind;
using Phase = SlotState::Phase;

const std::vector<SlotState>& NodeSlots::slots() const {
  static const auto& none = *new std::vector<SlotState>();
  return stays_ ? slots_ : none;
}

void NodeSlots::OnStays() {
  if (!std::exchange(stays_, true)) changed_ = true;
}

void NodeSlots::OnReady(int slot, int64_t left, const JoinOptions& ask) {
  SlotState& process = slots_[slot];
  if (process.phase != Phase::kStarting && process.phase != Phase::kReady) return;
  // A process that joins again because its time was over.
  if (process.phase == Phase::kReady && process.left == left) return;
  process.phase = Phase::kReady;
  process.left = left;
  process.done = process.all_done = false;
  process.ask = ask;
  stays_ = changed_ = true;
}

void NodeSlots::OnProgress(int slot, int64_t step) {
  const int64_t generation = told_[slot].generation;
  if (step <= step_ || generation == 0) return;
  step_ = step;
  if (progressed_ == generation) return;
  progressed_ = generation;
  changed_ = true;
}

void NodeSlots::OnDone(int slot, bool all) {
  slots_[slot].done = true;
  slots_[slot].all_done = all;
  changed_ = true;
}

void NodeSlots::OnUnfit(int slot) {
  slots_[slot].unfit = true;
  changed_ = true;
}

void NodeSlots::OnEndJob(int slot, const std::string& reason) {
  slots_[slot].ends_job = reason;
  changed_ = true;
}

bool NodeSlots::OnEnd(int slot, Failure failure) {
  SlotState& process = slots_[slot];
  const bool succeeded = failure.status.ok(), killed = failure.killed;
  process.phase = succeeded ? Phase::kSucceeded : Phase::kFailed;
  process.failure = std::move(failure);
  changed_ = true;
  return stays_ && (plan().formed || succeeded || killed);
}

const RankPlan::Slot& NodeSlots::place(int slot) const {
  static const auto& none = *new RankPlan::Slot();
  return ranks_.stays() ? ranks_.place(slot) : none;
}

RankGeneration NodeSlots::GenerationOf(int slot) const {
  return plan().GenerationOf(plan().nodes[ranks_.node].first + slot);
}

bool NodeSlots::IsMember(int slot) const {
  const SlotState& process = slots_[slot];
  return process.phase == Phase::kReady && !process.done && place(slot).rank >= 0 &&
         place(slot).process == process.process && process.left < plan().generation;
}

void NodeSlots::OnRanks(NodeRanks ranks) {
  if (!ranks.stays() || ranks.plan.nodes[ranks.node].slots != static_cast<int>(slots_.size())) return;
  ranks_ = std::move(ranks);
  OnStays();
  for (size_t slot = 0; slot < slots_.size(); ++slot) Apply(static_cast<int>(slot));
}

void NodeSlots::Apply(int slot) {
  const RankPlan::Slot& wanted = place(slot);
  SlotState& process = slots_[slot];
  if (wanted.process > process.process && process.phase == Phase::kFailed) {
    process = SlotState();
    process.process = wanted.process;
    told_[slot] = Told();
    changed_ = true;
    actions_.push_back({Kind::kStart, slot});
  }
  if (wanted.process != process.process) return;
  const bool is_given_up = wanted.state == RankPlan::State::kGivenUp;
  if (is_given_up && !std::exchange(told_[slot].given_up, true)) actions_.push_back({Kind::kGiveUp, slot});
  if (process.phase == Phase::kReady && wanted.rank >= 0) ApplyToMember(slot);
}

void NodeSlots::ApplyToMember(int slot) {
  Told& told = told_[slot];
  if (told.generation < plan().generation) {
    told = Told();
    told.generation = plan().generation;
    actions_.push_back({Kind::kGeneration, slot});
  }
  if (slots_[slot].left >= plan().generation) return;
  if (plan().order > told.order) {
    told.order = plan().order;
    actions_.push_back({Kind::kOrder, slot});
  }
  const bool is_late = place(slot).late && !slots_[slot].done;
  if (is_late && !std::exchange(told.killed, true)) actions_.push_back({Kind::kKill, slot});
}

}  // namespace lockstep::launch
