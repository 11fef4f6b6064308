#include "lockstep/examples/imagenet/checkpoints.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/examples/program/pretrained.h"
#include "lockstep/examples/program/saved_flag.h"
#include "lockstep/sampler/sampler_state_value.h"

namespace lockstep::examples::imagenet {
namespace {

using checkpoint::Manager;
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

absl::Status Checkpoints::Open() {
  const TrainConfig& config = state_.config;
  const bool saves = !config.evaluate && !config.dry_run;
  if (!saves && config.resume != "auto") return absl::OkStatus();
  checkpoint::ManagerOptions options;
  options.keep_last = static_cast<int>(config.keep_last);
  options.best_metric = "acc1";
  options.independent_of_ranks = config.virtual_ranks > 0;
  LOCKSTEP_ASSIGN_OR_RETURN(manager_, Manager::Create(config.checkpoint_dir, group_, options));
  return absl::OkStatus();
}

absl::StatusOr<bool> Checkpoints::Find() {
  const std::string& resume = state_.config.resume;
  if (resume == "auto") LOCKSTEP_RETURN_IF_ERROR(FindNewest());
  if (newest_ || (!resume.empty() && resume != "auto")) return true;
  LOCKSTEP_RETURN_IF_ERROR(CheckFolderIsFree());
  return false;
}

absl::Status Checkpoints::FindNewest() {
  const TrainConfig& config = state_.config;
  LOCKSTEP_ASSIGN_OR_RETURN(newest_, manager_->Latest());
  if (newest_) return absl::OkStatus();
  if (config.evaluate) {
    return FlagError("resume", "auto", absl::StrCat("a checkpoint in ", config.checkpoint_dir, ", which has none"));
  }
  if (group_->rank() == 0) {
    std::cout << "=> --resume=auto: there is no checkpoint in " << Printable(config.checkpoint_dir)
              << " yet, so training begins" << std::endl;
  }
  return absl::OkStatus();
}

// A later --resume=auto would take an earlier run's higher step for this run's newest checkpoint.
absl::Status Checkpoints::CheckFolderIsFree() {
  const TrainConfig& config = state_.config;
  if (!manager_ || config.evaluate || config.dry_run) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, manager_->Steps());
  if (steps.empty() || steps.back() <= state_.progress.step) return absl::OkStatus();
  return FlagError("checkpoint-dir", config.checkpoint_dir,
                   absl::StrCat("a folder without later checkpoints, but it has that of step ", steps.back(),
                                "; continue its run with --resume=auto, or choose another folder"));
}

absl::Status Checkpoints::Load() {
  const TrainConfig& config = state_.config;
  if (!config.pretrained.empty()) LOCKSTEP_RETURN_IF_ERROR(Annotate(LoadPretrained(), "--pretrained"));
  if (newest_) return Annotate(LoadNewest(), "--resume");
  if (config.resume.empty() || config.resume == "auto") return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(LoadFile(), "--resume"));
  return CheckFolderIsFree();
}

absl::Status Checkpoints::LoadPretrained() {
  const TrainConfig& config = state_.config;
  torch::nn::Module& net = *state_.learner->net();
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t classes, LoadPretrainedBackbone(config.pretrained, net));
  if (classes == 0) return absl::OkStatus();
  const int64_t own = net.named_parameters().back().value().size(0);
  if (config.evaluate && config.resume.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(config.pretrained, ": it has ", classes, " classes, and the data ",
                                                   own, ": expected the same number with --evaluate"));
  }
  if (group_->rank() == 0) {
    std::cout << "=> --pretrained: " << Printable(config.pretrained) << " has " << classes << " classes, and the data "
              << own << ": the layer " << LastLayer(net) << " begins anew" << std::endl;
  }
  return absl::OkStatus();
}

absl::Status Checkpoints::LoadNewest() {
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Restored restored, manager_->Load(*newest_, {.map_location = "cpu"}));
  LOCKSTEP_RETURN_IF_ERROR(Resume(newest_->path, restored.value));
  state_.progress.step = newest_->step;
  return absl::OkStatus();
}

// If the file is Python's, it has no step.
absl::Status Checkpoints::LoadFile() {
  const std::string& path = state_.config.resume;
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(path, {.map_location = "cpu"}));
  LOCKSTEP_RETURN_IF_ERROR(Resume(path, file));
  const absl::StatusOr<int64_t> step = checkpoint::GetInt(file, {"lockstep", "step"});
  const int64_t accum_steps = state_.config.accum_steps;
  const int64_t epoch_steps = (state_.input->BatchesPerEpoch() + accum_steps - 1) / accum_steps;
  const int64_t counted = state_.progress.epoch * epoch_steps + state_.input->BatchesDone() / accum_steps;
  state_.progress.step = step.ok() ? *step : counted;
  return absl::OkStatus();
}

absl::Status Checkpoints::Resume(const std::string& path, const Value& file) {
  std::optional<Reporter>& reporter = state_.reporter;
  if (reporter) reporter->Begin(absl::StrCat("=> loading checkpoint '", path, "'"));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(Restore(file), path));
  Input& input = *state_.input;
  input.sampler().set_epoch(state_.progress.epoch);
  if (reporter && !state_.config.evaluate) {
    reporter->Say(absl::StrCat("=> loaded checkpoint '", path, "' (epoch ", state_.progress.epoch, ", ",
                               input.BatchesDone(), " of ", input.BatchesPerEpoch(), " batches done)"));
  }
  return absl::OkStatus();
}

absl::Status Checkpoints::Restore(const Value& file) {
  const TrainConfig& config = state_.config;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string arch, checkpoint::GetString(file, "arch"));
  if (arch != config.arch) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of another model: expected arch \"", config.arch, "\", found \"", arch, "\""));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(state_.progress.epoch, checkpoint::GetInt(file, "epoch"));
  LOCKSTEP_ASSIGN_OR_RETURN(state_.progress.best_acc1, BestTop1(file));
  if (config.evaluate) return state_.learner->RestoreWeights(file);
  LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(file, "virtual-ranks", config.virtual_ranks));
  LOCKSTEP_RETURN_IF_ERROR(RestoreSampler(file, state_.input->sampler()));
  LOCKSTEP_RETURN_IF_ERROR(state_.learner->Restore(file));
  return file.Find("epoch_sums") ? RestoreSums(file) : absl::OkStatus();
}

// Each virtual rank goes on from its own sums, so that the figures have the bits of an uninterrupted run.
absl::Status Checkpoints::RestoreSums(const Value& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor saved, checkpoint::GetTensor(file, "epoch_sums"));
  const at::Tensor sums = state_.epoch_sums.slice(0, 0, std::max(state_.config.virtual_ranks, 1));
  if (saved.sizes() != sums.sizes()) {
    return absl::InvalidArgumentError(absl::StrCat("epoch_sums: expected the shape [",
                                                   absl::StrJoin(sums.sizes(), ", "), "], found [",
                                                   absl::StrJoin(saved.sizes(), ", "), "]"));
  }
  return TorchStatus("epoch_sums", [&] { sums.copy_(saved); });
}

absl::StatusOr<Value> Checkpoints::Contents() const {
  const RunProgress& progress = state_.progress;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value::Entry> learned, state_.learner->State());
  std::vector<Value::Entry> entries = {{"epoch", progress.epoch},
                                       {"arch", state_.config.arch},
                                       {"best_acc1", at::full({}, progress.best_acc1, at::kDouble)},
                                       {"sampler", sampler::ToValue(progress.place)},
                                       {"virtual_ranks", state_.config.virtual_ranks},
                                       {"epoch_sums", state_.EpochSums()}};
  entries.insert(entries.end(), learned.begin(), learned.end());
  return Value::Dict(entries);
}

absl::Status Checkpoints::SaveIfDue() {
  RunProgress& progress = state_.progress;
  if (progress.is_saved) return absl::OkStatus();
  Value contents = Value::Dict();  // of rank 0, which writes
  if (group_->rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(contents, Contents());
  }
  std::map<std::string, double> metrics;
  if (progress.acc1) metrics["acc1"] = *progress.acc1;
  LOCKSTEP_RETURN_IF_ERROR(manager_->Save(progress.step, contents, {std::move(metrics)}));
  return state_.Commit([&] {
    progress.is_saved = true;
    progress.acc1.reset();
    return absl::OkStatus();
  });
}

}  // namespace lockstep::examples::imagenet
