#include "lockstep/tools/launch/internal/node_ranks.h"

#include <cstddef>

namespace lockstep::launch::internal {

using Kind = NodeSlots::Action::Kind;
using Phase = SlotState::Phase;

void NodeSlots::Act(Action::Kind kind, int slot) {
  Action action;
  action.kind = kind;
  action.slot = slot;
  actions_.push_back(action);
}

const std::vector<SlotState>& NodeSlots::slots() const {
  static const auto& none = *new std::vector<SlotState>();
  return kept_ ? slots_ : none;
}

void NodeSlots::OnStays() {
  if (!std::exchange(kept_, true)) changed_ = true;
}

void NodeSlots::OnReady(int slot, int64_t left, const Membership::Ask& ask) {
  SlotState& process = slots_[slot];
  if (process.phase != Phase::kStarting && process.phase != Phase::kReady) return;
  // A process that joins again because its time was over.
  if (process.phase == Phase::kReady && process.left == left) return;
  process.phase = Phase::kReady;
  process.left = left;
  process.done = process.all_done = false;
  process.ask = ask;
  kept_ = changed_ = true;
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

void NodeSlots::OnEndJob(int slot, const std::string& reason) {
  slots_[slot].ends_job = reason;
  changed_ = true;
}

bool NodeSlots::OnEnd(int slot, NodeFailure failure) {
  SlotState& process = slots_[slot];
  const bool succeeded = failure.status.ok(), killed = failure.killed;
  process.phase = succeeded ? Phase::kSucceeded : Phase::kFailed;
  process.failure = std::move(failure);
  changed_ = true;
  return kept_ && (ranks_.formed || succeeded || killed);
}

void NodeSlots::OnRanks(NodeRanks ranks) {
  ranks_ = std::move(ranks);
  if (ranks_.kept) OnStays();
  if (!ranks_.kept || ranks_.slots.size() != slots_.size()) return;
  for (size_t slot = 0; slot < slots_.size(); ++slot) Obey(static_cast<int>(slot), ranks_.slots[slot]);
}

void NodeSlots::Obey(int slot, const NodeRanks::Slot& wanted) {
  SlotState& process = slots_[slot];
  Told& told = told_[slot];
  if (wanted.process > process.process && process.phase == Phase::kFailed) {
    process = SlotState();
    process.process = wanted.process;
    told = Told();
    changed_ = true;
    Act(Kind::kStart, slot);
  }
  if (wanted.process != process.process) return;
  if (wanted.given_up && !std::exchange(told.given_up, true)) Act(Kind::kGiveUp, slot);
  if (process.phase != Phase::kReady || wanted.rank < 0) return;
  if (told.generation < ranks_.generation) {
    told = Told();
    told.generation = ranks_.generation;
    Act(Kind::kGeneration, slot);
  }
  if (ranks_.order > told.order && process.left < ranks_.generation) {
    told.order = ranks_.order;
    Act(Kind::kOrder, slot);
  }
  if (wanted.kill && !process.done && process.left < ranks_.generation && !std::exchange(told.killed, true))
    Act(Kind::kKill, slot);
}

}  // namespace lockstep::launch::internal
