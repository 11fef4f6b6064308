#include "lockstep/fsdp/internal/virtual_step.h"

#include <c10/core/GradMode.h>

#include "absl/strings/str_cat.h"
#include "lockstep/base/seed.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::fsdp::internal {

void VirtualStep::Begin(int64_t step) {
  ThrowIfError(std::exchange(left_early_, absl::OkStatus()));
  step_ = step;
  ranks_.clear();
  for (int round = 0; round < reducer_->rounds(); ++round) {
    if (reducer_->LeafOf(round) >= 0) ranks_.push_back(reducer_->LeafOf(round));
  }
}

void VirtualStep::BeginRank(size_t place) {
  if (!on_) return;
  buffers_->BeginVirtualRank(place, ranks_.size());
  reducer_->SetRound(static_cast<int>(place));
  at::manual_seed(SeedOf(seed_, step_, ranks_[place]));
}

void VirtualStep::EndRank(size_t place) {
  if (!on_) return;
  const int passes = reducer_->reduced() - static_cast<int>(place);
  if (passes != 1) {
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(who_, ": virtual rank ", ranks_[place], " has run ", passes, " backward passes, expected 1")));
  }
  buffers_->EndVirtualRank(place, ranks_.size());
  const int next = static_cast<int>(place) + 1;
  if (next == static_cast<int>(ranks_.size()) && next < reducer_->rounds()) reducer_->SkipRound(next);
}

void VirtualStep::Leave(bool thrown) {
  if (!on_ || thrown || reducer_->reduced() == static_cast<int>(ranks_.size())) return;
  left_early_ = absl::FailedPreconditionError(
      absl::StrCat(who_, ": the loop over VirtualRanks() of step ", step_, " was left early"));
}

void VirtualStep::CheckForward() const {
  ThrowIfError(left_early_);
  if (on_ && ranks_.empty() && c10::GradMode::is_enabled()) {
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(who_, ": with Options::virtual_ranks, forward must be in a loop over VirtualRanks()")));
  }
}

}  // namespace lockstep::fsdp::internal
