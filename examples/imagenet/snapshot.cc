#include "lockstep/examples/imagenet/snapshot.h"

#include <ATen/ops/full.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/examples/program/saved_flag.h"
#include "lockstep/sampler/sampler_state_value.h"

namespace lockstep::examples::imagenet {
namespace {

using checkpoint::Value;

// Python's example saves a tensor after one validation and a number after another.
absl::StatusOr<double> BestTop1(const Value& file) {
  const Value* const best = file.Find("best_acc1");
  if (!best) return absl::NotFoundError("it has no best_acc1");
  if (best->is_tensor() && best->tensor().numel() == 1) return best->tensor().item<double>();
  return checkpoint::GetDouble(file, "best_acc1");
}

absl::Status RestoreSampler(const Value& file, sampler::VirtualRankSampler& sampler) {
  if (!file.Find("sampler")) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const Value value, checkpoint::GetDict(file, "sampler"));
  LOCKSTEP_ASSIGN_OR_RETURN(const sampler::SamplerState state, sampler::ToSamplerState(value));
  return sampler.Restore(state);
}

}  // namespace

absl::StatusOr<Value> Snapshot(const TrainConfig& config, const Position& position, const Learner& learner,
                               const sampler::SamplerState& sampler, const at::Tensor& epoch_sums) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value::Entry> learned, learner.State());
  std::vector<Value::Entry> entries = {{"epoch", position.epoch},
                                       {"arch", config.arch},
                                       {"best_acc1", at::full({}, position.best_acc1, at::kDouble)},
                                       {"sampler", sampler::ToValue(sampler)},
                                       {"virtual_ranks", config.virtual_ranks},
                                       {"epoch_sums", epoch_sums}};
  entries.insert(entries.end(), learned.begin(), learned.end());
  return Value::Dict(entries);
}

absl::StatusOr<Restored> Restore(const Value& snapshot, const TrainConfig& config, Learner& learner,
                                 sampler::VirtualRankSampler* sampler) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string found, checkpoint::GetString(snapshot, "arch"));
  if (found != config.arch) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of another model: expected arch \"", config.arch, "\", found \"", found, "\""));
  }
  Restored restored;
  LOCKSTEP_ASSIGN_OR_RETURN(restored.position.epoch, checkpoint::GetInt(snapshot, "epoch"));
  LOCKSTEP_ASSIGN_OR_RETURN(restored.position.best_acc1, BestTop1(snapshot));
  if (!sampler) {
    LOCKSTEP_RETURN_IF_ERROR(learner.RestoreWeights(snapshot));
    return restored;
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(snapshot, "virtual-ranks", config.virtual_ranks));
  LOCKSTEP_RETURN_IF_ERROR(RestoreSampler(snapshot, *sampler));
  LOCKSTEP_RETURN_IF_ERROR(learner.Restore(snapshot));
  if (snapshot.Find("epoch_sums")) {
    LOCKSTEP_ASSIGN_OR_RETURN(restored.epoch_sums, checkpoint::GetTensor(snapshot, "epoch_sums"));
  }
  return restored;
}

}  // namespace lockstep::examples::imagenet
