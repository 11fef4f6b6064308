// The parts of World that are about sharded optimizers.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/shard.h"
#include "lockstep/elastic/internal/shards.h"
#include "lockstep/elastic/world.h"

namespace lockstep::elastic {

using checkpoint::Value;
using internal::StepPart;

absl::Status World::KeepSharded(const std::string& name, torch::optim::Optimizer& optimizer, internal::Shard& shard) {
  internal::KeptThing thing;
  // At the start of the job all of it. Then only the options are the same on all ranks, and Shards has the state.
  thing.save = [this, &optimizer]() -> absl::StatusOr<Value> {
    LOCKSTEP_ASSIGN_OR_RETURN(Value dict, checkpoint::OptimizerStateDict(optimizer));
    if (divided_) dict.Set("state", Value::Dict());
    return dict;
  };
  thing.load = [&optimizer](const Value& value) {
    return checkpoint::LoadOptimizerStateDict(optimizer, value, /*copy=*/false);
  };
  LOCKSTEP_RETURN_IF_ERROR(kept_->Add(name, std::move(thing)));
  shards_->Add(name, &optimizer, &shard);
  return absl::OkStatus();
}

// The steps in this rank's state, as PlanHealing() counts them. The state of a sharded optimizer cannot be compared by
// ranks that have parts of it. So there the state on which all ranks have agreed at the start counts as a step.
int64_t World::progress() const {
  if (shards_->empty() || commits_ == internal::kNoState) return commits_;
  return divided_ ? commits_ + 1 : 0;
}

void World::SetProgress(int64_t progress) { commits_ = shards_->empty() || progress == 0 ? progress : progress - 1; }

// The ranks that have stepped their own shards get the other parameters. They have counted the failure at a different
// number of steps than those that had these already.
absl::Status World::CompleteStep() {
  const bool receives = absl::c_linear_search(healing_->receivers, group_->rank());
  const bool has_all = !receives && part_ == StepPart::kNothing;
  LOCKSTEP_RETURN_IF_ERROR(shards_->SpreadParameters(*group_, has_all, /*has_none=*/receives));
  std::string failures;
  if (group_->rank() == healing_->sources[0]) {
    LOCKSTEP_ASSIGN_OR_RETURN(failures, checkpoint::Serialize(Failures()));
  }
  LOCKSTEP_RETURN_IF_ERROR(group_->BroadcastBytes(failures, healing_->sources[0]));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value value, checkpoint::Deserialize(failures));
  LOCKSTEP_RETURN_IF_ERROR(SetFailures(value));
  if (part_ != StepPart::kNothing) CountStep();
  return absl::OkStatus();
}

// Whether the optimizer's state is complete. If the last step is done, nobody asks.
absl::Status World::CheckShards() {
  is_final_ |= !shards_->lost().ok();
  return shards_->lost();
}

// When a rank has passed the barrier, all ranks have the gradients. So if one has stepped its shards, all others can,
// also if the group has failed meanwhile.
absl::Status World::StepShards(const std::function<void()>& apply) {
  LOCKSTEP_RETURN_IF_ERROR(CheckShards());
  shards_->DropOthers();
  part_ = StepPart::kGradients;
  const absl::Status all_have_gradients = group_->Barrier();
  if (!all_have_gradients.ok()) return MeetBeforeStep(all_have_gradients, apply);
  LOCKSTEP_RETURN_IF_ERROR(Apply(apply));
  part_ = StepPart::kOwnShards;
  return shards_->ShareParameters(*group_);
}

// Asks the ranks that are left whether one of them has passed the barrier that failed here with `status`. `apply` is still
// callable only before Commit() returns.
absl::Status World::MeetBeforeStep(absl::Status status, const std::function<void()>& apply) {
  do {
    end_ = Leave(status, /*keeps_group=*/!left_group_);
    if (!end_) {
      const absl::Status joined = JoinGeneration();
      if (!joined.ok()) end_ = joined;
    }
    if (end_) return *end_;
    status = Meet();
  } while (!status.ok());
  if (healing_->newest > progress()) {
    const absl::Status applied = Apply(apply);
    if (!applied.ok()) {
      end_ = Leave(applied);
      return applied;
    }
    part_ = StepPart::kOwnShards;
  } else {
    part_ = StepPart::kNothing;
    kept_->TakeBack();
  }
  met_ = true;
  return absl::AbortedError("World: the ranks regroup, since one of them has left");
}

absl::Status World::GatherShards(int to) {
  if (!group_) return absl::FailedPreconditionError("World::GatherShards: called outside of Run()");
  if (to < 0 || to >= group_->size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", group_->rank(), ": World::GatherShards: to is ", to,
                                                   ", expected a rank below ", group_->size()));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckShards());
  return shards_->empty() ? absl::OkStatus() : shards_->Gather(*group_, to);
}

}  // namespace lockstep::elastic
