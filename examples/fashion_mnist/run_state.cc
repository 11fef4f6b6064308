#include "lockstep/examples/fashion_mnist/run_state.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/ddp/bucket_layout_value.h"
#include "lockstep/examples/program/saved_flag.h"
#include "lockstep/sampler/sampler_state_value.h"

namespace lockstep::examples {

using checkpoint::Value;

absl::Status RunState::CheckFlags(bool elastic) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment, comm::ReadRankEnvironment());
  const int64_t ranks = environment.world_size.value_or(1), parts = virtual_ranks ? virtual_ranks : ranks;
  if (parts < ranks) return FlagError("virtual_ranks", parts, absl::StrCat("0, or at least the ", ranks, " ranks"));
  const bool may_shrink = elastic && virtual_ranks == 0;
  if (batch_size >= parts && (batch_size % parts == 0 || may_shrink)) return absl::OkStatus();
  return FlagError("batch_size", batch_size, absl::StrCat("a multiple of ", parts));
}

absl::Status RunState::Save(checkpoint::Manager* manager, const ddp::DistributedDataParallel<Net>& ddp,
                            int ranks) const {
  if (!manager) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer_state, checkpoint::OptimizerStateDict(*optimizer));
  Value saved = Value::Dict({{"batch_size", batch_size},
                             {"virtual_ranks", virtual_ranks},
                             {"state_dict", checkpoint::StateDict(*net)},
                             {"optimizer", optimizer_state},
                             {"sampler", sampler::ToValue(progress.place)},
                             {"losses", progress.losses},
                             {"loss_steps", progress.loss_steps}});
  if (virtual_ranks == 0) saved.Set("bucket_layout", ddp::ToValue(ddp.bucket_layout(), ranks));
  return manager->Save(progress.step, saved);
}

absl::StatusOr<std::string> RunState::Resume(checkpoint::Manager& manager, ddp::DistributedDataParallel<Net>& ddp,
                                             int ranks, sampler::VirtualRankSampler& sampler) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto newest, manager.LoadLatest());
  if (!newest) return std::string();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(Restore(newest->value, ddp, ranks), newest->info.path));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(sampler.Restore(progress.place), newest->info.path));
  progress.step = newest->info.step;
  return newest->info.path;
}

absl::Status RunState::Restore(const Value& saved, ddp::DistributedDataParallel<Net>& ddp, int ranks) {
  const auto part = [&](const char* key) { return saved.Find(key) ? *saved.Find(key) : Value(); };
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net, part("state_dict")));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadOptimizerStateDict(*optimizer, part("optimizer")));
  LOCKSTEP_ASSIGN_OR_RETURN(progress.place, sampler::ToSamplerState(part("sampler")));
  LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(saved, "batch_size", batch_size));
  LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(saved, "virtual_ranks", virtual_ranks));
  if (virtual_ranks == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto buckets, ddp::ToBucketLayout(part("bucket_layout"), ranks));
    LOCKSTEP_RETURN_IF_ERROR(ddp.RestoreBucketLayout(buckets));
  }
  if (saved.Find("losses")) {
    LOCKSTEP_ASSIGN_OR_RETURN(progress.losses, checkpoint::GetDouble(saved, "losses"));
    LOCKSTEP_ASSIGN_OR_RETURN(progress.loss_steps, checkpoint::GetInt(saved, "loss_steps"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::examples
