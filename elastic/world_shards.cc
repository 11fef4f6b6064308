// The parts of World that are about sharded optimizers.

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/elastic/internal/generation.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/rank_steps.h"
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
    if (steps_->is_divided()) dict.Set("state", Value::Dict());
    return dict;
  };
  thing.load = [&optimizer](const Value& value) {
    return checkpoint::LoadOptimizerStateDict(optimizer, value, /*copy=*/false);
  };
  LOCKSTEP_RETURN_IF_ERROR(kept_->Add(name, std::move(thing)));
  shards_->Add(name, &optimizer, &shard);
  steps_->Shard();
  return absl::OkStatus();
}

absl::Status World::KeepModel(const std::string& name, internal::KeptModel& model) {
  internal::KeptThing thing;
  thing.save = [this, &model]() -> absl::StatusOr<Value> { return model.Save(!steps_->is_divided()); };
  thing.load = [&model](const Value& value) { return model.Load(value); };
  thing.buffers = model.buffers();
  RememberBuffers(&thing);
  LOCKSTEP_RETURN_IF_ERROR(kept_->Add(name, std::move(thing)));
  shards_->AddModel(name, &model);
  steps_->Shard();
  return absl::OkStatus();
}

// Checks what concerns all that is sharded, before the ranks meet.
absl::Status World::CheckModels() const {
  if (!shards_->has_models()) return absl::OkStatus();
  for (const auto& [name, is_set] :
       {std::pair("check_every", options_.check_every > 0), {"refuse_non_finite", options_.refuse_non_finite}}) {
    if (!is_set) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("World::Run: Options::", name, " sees no parameters of a ShardedModel, which is kept"));
  }
  return shards_->CheckModels();
}

// The ranks that have stepped their own shards get the other parameters. They have counted the failure at a different
// number of steps than those that had these already.
absl::Status World::CompleteStep() {
  const internal::Healing& healing = present_->healing();
  const int rank = group().rank(), first = healing.sources[0];
  const absl::Status spread = shards_->SpreadParameters(group(), steps_->HasAllParameters(healing, rank),
                                                        /*has_none=*/healing.IsReceiver(rank));
  LOCKSTEP_RETURN_IF_ERROR(CheckShards());
  LOCKSTEP_RETURN_IF_ERROR(spread);
  std::string failures;
  if (rank == first) {
    LOCKSTEP_ASSIGN_OR_RETURN(failures, checkpoint::Serialize(History()));
  }
  LOCKSTEP_RETURN_IF_ERROR(group().BroadcastBytes(failures, first));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value value, checkpoint::Deserialize(failures));
  LOCKSTEP_RETURN_IF_ERROR(SetHistory(value));
  if (steps_->part() != StepPart::kNothing) CountStep();
  return absl::OkStatus();
}

// Checks that the optimizer's state is complete. If the last step is done, nobody asks.
absl::Status World::CheckShards() {
  present_->facts.is_final |= !shards_->lost().ok();
  return shards_->lost();
}

// When a rank has passed the barrier, all ranks have the gradients. So if one has stepped its shards, all others can,
// also if the group has failed meanwhile.
absl::Status World::StepShards(const std::function<void()>& apply) {
  LOCKSTEP_RETURN_IF_ERROR(CheckShards());
  shards_->DropOthers();
  LOCKSTEP_RETURN_IF_ERROR(shards_->PrepareModels());
  steps_->OnGradients();
  const absl::Status all_have_gradients = group().Barrier();
  if (!all_have_gradients.ok()) return MeetBeforeStep(all_have_gradients, apply);
  LOCKSTEP_RETURN_IF_ERROR(Apply(apply));
  steps_->OnOwnShards();
  return shards_->ShareParameters(group());
}

// Asks the ranks that are left whether one of them has passed the barrier that failed here with `status`. `apply` is
// still callable only before Commit() returns.
absl::Status World::MeetBeforeStep(const absl::Status& status, const std::function<void()>& apply) {
  end_ = Leave(status, /*keeps_group=*/true);
  if (!end_) end_ = JoinAndMeet();
  if (end_) return *end_;
  if (steps_->OnMetInCommit(present_->healing()) == internal::StepUnderWay::kApply) {
    const absl::Status applied = Apply(apply);
    if (!applied.ok()) {
      end_ = Leave(applied);
      return applied;
    }
    steps_->OnOwnShards();
  } else {
    kept_->TakeBack();
  }
  return absl::AbortedError("World: the ranks regroup, since one of them has left");
}

absl::Status World::GatherShards(int to, bool with_states) {
  if (!IsInTraining()) return absl::FailedPreconditionError("World::GatherShards: called outside of Run()");
  if (to < 0 || to >= group().size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", group().rank(), ": World::GatherShards: to is ", to,
                                                   ", expected a rank below ", group().size()));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckShards());
  return shards_->empty() ? absl::OkStatus() : shards_->Gather(group(), to, with_states);
}

}  // namespace lockstep::elastic
