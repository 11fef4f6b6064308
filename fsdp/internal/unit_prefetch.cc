#include "lockstep/fsdp/internal/unit_prefetch.h"

#include <utility>

#include "lockstep/base/status.h"

namespace lockstep::fsdp::internal {

using Act = UnitOrder::Act;
using Event = UnitOrder::Event;

void UnitPrefetch::BeginForward(bool trains) {
  sequence_ = trains ? &training_ : &evaluation_;
  if (!trains) evaluation_.EndStep();
  sequence_->BeginPart();
  used_ = -1;
  alike_ = false;
}

void UnitPrefetch::EndStep() {
  training_.EndStep();
  order_.NextStep();
  used_ = -1;
  alike_ = false;
}

void UnitPrefetch::Uses(size_t unit) {
  sequence_->Add({/*reduces=*/false, unit});
  used_ = static_cast<int64_t>(unit);
}

absl::StatusOr<int64_t> UnitPrefetch::TakeAgreed() {
  if (order_.pending()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Event event, order_.Finish());
    agreed_ = event.ahead;
    alike_ = event.plan != 0;
  }
  return std::exchange(agreed_, -1);
}

absl::StatusOr<Event> UnitPrefetch::Agree(Act act, size_t unit, int64_t ahead) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Event event, order_.Agree(act, unit, ahead, on_ ? sequence_->Fingerprint() : 0));
  agreed_ = event.ahead;
  alike_ = event.plan != 0;
  return event;
}

absl::Status UnitPrefetch::AgreeToGather(size_t unit, const Has& has) {
  // It is gathered right behind this one.
  return Agree(Act::kGather, unit, NextToGather(/*uses=*/1, has)).status();
}

absl::Status UnitPrefetch::AgreeToReduce(size_t unit, const Has& has) {
  // It is gathered when operators begin to use the next one.
  const std::vector<UnitSequence::Entry> next = sequence_->Next(1);
  const bool is_used_next = !next.empty() && !next[0].reduces;
  return Agree(Act::kReduce, unit, is_used_next ? NextToGather(/*uses=*/2, has) : -1).status();
}

void UnitPrefetch::Plan(size_t unit, const Has& has) {
  if (!on_ || !alike_ || order_.pending() || agreed_ >= 0) return;
  const std::vector<UnitSequence::Entry> next = sequence_->Next(1);
  if (next.empty() || next[0].reduces) return;
  const int64_t ahead = NextToGather(/*uses=*/2, has);
  if (ahead >= 0) order_.Start(Act::kUse, unit, ahead, sequence_->Fingerprint());
}

// Returns the first of the next `uses` units that this rank lacks, or -1.
int64_t UnitPrefetch::NextToGather(size_t uses, const Has& has) const {
  if (!on_) return -1;
  for (const UnitSequence::Entry& entry : sequence_->Next(2 * uses + 2)) {
    if (entry.reduces) continue;
    if (!has(entry.unit) && static_cast<int64_t>(entry.unit) != used_) return static_cast<int64_t>(entry.unit);
    if (--uses == 0) return -1;
  }
  return -1;
}

}  // namespace lockstep::fsdp::internal
