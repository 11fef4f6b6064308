// The state of a run: what a rank keeps when its group of ranks ends, and what checkpoints contain. Python's ImageNet
// example can read the checkpoints, and a run can resume from Python's.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_RUN_STATE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_RUN_STATE_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/manager/preemption_notice.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/world.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/input.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/examples/imagenet/reporter.h"
#include "lockstep/examples/program/pretrained.h"
#include "lockstep/examples/program/saved_flag.h"
#include "lockstep/sampler/sampler_state.h"
#include "lockstep/sampler/sampler_state_value.h"

namespace lockstep::examples::imagenet {

// The progress of a run, equal on all ranks. After the first step it changes in RunState::Commit() only.
struct RunProgress {
  int64_t epoch = 0;            // the epoch that continues or begins here, counted from 0
  double best_acc1 = 0;         // best top-1 accuracy of a validation so far, in percent
  int64_t step = 0;             // steps of the optimizer that are done, in the whole run
  sampler::SamplerState place;  // the position in the training images
  int64_t batch_size = 0;       // batch size of a virtual rank. 0: before the first step
  bool is_reported = false;     // whether the training of this epoch is reported, after its last step
  bool is_saved = true;         // whether no checkpoint is due
  std::optional<double> acc1;   // the metric of the checkpoint that is due
};

// If a rank dies, the next group goes on with this state. The objects that use a group end with it. The world gives
// `progress`, `epoch_sums` and the learner's weights to a rank that comes. The other members belong to this process.
struct RunState {
  const TrainConfig config;
  elastic::World& world;  // borrowed. It must not outlive the state
  const std::unique_ptr<Input> input;
  const std::unique_ptr<Learner> learner;
  RunProgress progress = {};
  at::Tensor epoch_sums = {};  // PassMeters::TakeSums() of the epoch so far, of all ranks: a row for each virtual rank
                               // of --virtual-ranks, or one row
  std::unique_ptr<Reporter> reporter = nullptr;                    // on rank 0 only
  std::unique_ptr<checkpoint::PreemptionNotice> notice = nullptr;  // null before the training

  // Applies `apply`, which changes `progress` and the learner, as World::Commit() does. Every rank must call it.
  absl::Status Commit(const std::function<absl::Status()>& apply) {
    return world.Commit([&] { ThrowIfError(apply()); });
  }

  // Prints the images that `loader` has left out.
  void PrintSkipped(const data::Loader& loader) const {
    for (const data::Loader::Skipped& skipped : loader.skipped()) {
      std::cerr << absl::StrCat("rank ", world.generation().rank, " skipped: ", Printable(skipped.error.message()),
                                "\n");
    }
  }
};

// The checkpoints of one group of ranks. Every rank must call the same functions.
//
// A checkpoint has the keys of Python's example (epoch, arch, state_dict, best_acc1, optimizer, scheduler; parameter
// names have no "module." prefix), "sampler" (the position in the epoch), "optimizer_name" and "virtual_ranks" (the
// flags' values), "epoch_sums" (as in RunState), and the other entries of Learner::State(). A checkpoint of Python's example has no
// "sampler", so its epoch starts from the beginning.
class Checkpoints {
 public:
  // `state` and `group` are borrowed.
  Checkpoints(RunState& state, comm::ProcessGroup* group) : state_(state), group_(group), config_(state.config) {}

  // Opens --checkpoint-dir, unless the run neither saves nor looks for the newest checkpoint. Errors are Manager's.
  absl::Status Open() {
    if (!saves_ && config_.resume != "auto") return absl::OkStatus();
    checkpoint::ManagerOptions options;
    options.keep_last = static_cast<int>(config_.keep_last);
    options.best_metric = "acc1";
    options.independent_of_ranks = config_.virtual_ranks > 0;
    LOCKSTEP_ASSIGN_OR_RETURN(manager_, checkpoint::Manager::Create(config_.checkpoint_dir, group_, options));
    return absl::OkStatus();
  }

  // Finds the checkpoint that --resume means, and returns whether there is one. If there is none, it checks that
  // --checkpoint-dir has no later checkpoints. Call it before files are opened, which would lose their contents.
  absl::StatusOr<bool> Find() {
    if (config_.resume == "auto") LOCKSTEP_RETURN_IF_ERROR(FindNewest());
    if (newest_ || (!config_.resume.empty() && config_.resume != "auto")) return true;
    LOCKSTEP_RETURN_IF_ERROR(CheckFolderIsFree());
    return false;
  }

  // Loads --pretrained and the checkpoint that Find() has found. InvalidArgument, naming the difference: the checkpoint
  // is from another arch, optimizer, dataset or seed, or, unless --evaluate is given, from another number of virtual ranks. The
  // number of ranks may differ.
  absl::Status Load() {
    if (!config_.pretrained.empty()) LOCKSTEP_RETURN_IF_ERROR(Annotate(LoadNet(), "--pretrained"));
    if (newest_) return Annotate(Resume(), "--resume");
    if (config_.resume.empty() || config_.resume == "auto") return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(Annotate(Resume(), "--resume"));
    return CheckFolderIsFree();
  }

  // Saves the state if a checkpoint is due. If a rank dies before all ranks know that the file is in place, the next
  // group saves it again.
  absl::Status SaveIfDue() {
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

 private:
  using Value = checkpoint::Value;

  absl::Status FindNewest() {
    const std::string& folder = config_.checkpoint_dir;
    LOCKSTEP_ASSIGN_OR_RETURN(newest_, manager_->Latest());
    if (newest_) return absl::OkStatus();
    if (config_.evaluate) {
      return FlagError("resume", "auto", absl::StrCat("a checkpoint in ", folder, ", which has none"));
    }
    if (group_->rank() == 0) {
      std::cout << "=> --resume=auto: there is no checkpoint in " << Printable(folder) << " yet, so training begins"
                << std::endl;
    }
    return absl::OkStatus();
  }

  // A later --resume=auto would take an earlier run's higher step for this run's newest checkpoint.
  absl::Status CheckFolderIsFree() {
    if (!saves_) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, manager_->Steps());
    if (steps.empty() || steps.back() <= state_.progress.step) return absl::OkStatus();
    return FlagError("checkpoint-dir", config_.checkpoint_dir,
                     absl::StrCat("a folder without later checkpoints, but it has that of step ", steps.back(),
                                  "; continue its run with --resume=auto, or choose another folder"));
  }

  // Loads --pretrained.
  absl::Status LoadNet() {
    const std::string& file = config_.pretrained;
    torch::nn::Module& net = *state_.learner->net();
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t classes, LoadPretrained(file, net));
    if (classes == 0) return absl::OkStatus();
    const int64_t own = net.named_parameters().back().value().size(0);
    if (config_.evaluate && config_.resume.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": it has ", classes, " classes, and the data ", own,
                                                     ": expected the same number with --evaluate"));
    }
    if (group_->rank() == 0) {
      std::cout << "=> --pretrained: " << Printable(file) << " has " << classes << " classes, and the data " << own
                << ": the layer " << LastLayer(net) << " begins anew" << std::endl;
    }
    return absl::OkStatus();
  }

  absl::Status Resume() {
    const std::string& path = newest_ ? newest_->path : config_.resume;
    Value file;
    if (newest_) {
      LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::Restored restored, manager_->Load(*newest_, {.map_location = "cpu"}));
      file = std::move(restored.value);
    } else {
      LOCKSTEP_ASSIGN_OR_RETURN(file, checkpoint::Load(path, {.map_location = "cpu"}));
    }
    const std::unique_ptr<Reporter>& reporter = state_.reporter;
    if (reporter) reporter->Begin(absl::StrCat("=> loading checkpoint '", path, "'"));
    LOCKSTEP_RETURN_IF_ERROR(Annotate(Restore(file), path));
    Input& input = *state_.input;
    RunProgress& progress = state_.progress;
    input.train_sampler->set_epoch(progress.epoch);
    const int64_t done = input.BatchesDone(), all = input.BatchesPerEpoch();
    if (reporter && !config_.evaluate) {
      reporter->Say(absl::StrCat("=> loaded checkpoint '", path, "' (epoch ", progress.epoch, ", ", done, " of ", all,
                                 " batches done)"));
    }
    // If the file is Python's, it has no step.
    const absl::StatusOr<int64_t> step = checkpoint::GetInt(file, {"lockstep", "step"});
    const int64_t epoch_steps = (all + config_.accum_steps - 1) / config_.accum_steps;
    const int64_t counted = progress.epoch * epoch_steps + done / config_.accum_steps;
    progress.step = newest_ ? newest_->step : step.value_or(counted);
    return absl::OkStatus();
  }

  absl::Status Restore(const Value& file) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string arch, checkpoint::GetString(file, "arch"));
    if (arch != config_.arch) {
      return absl::InvalidArgumentError(
          absl::StrCat("it is of another model: expected arch \"", config_.arch, "\", found \"", arch, "\""));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(state_.progress.epoch, checkpoint::GetInt(file, "epoch"));
    // Python's example saves a tensor after one validation and a number after another.
    const Value* const best = file.Find("best_acc1");
    if (!best) return absl::NotFoundError("it has no best_acc1");
    if (best->is_tensor() && best->tensor().numel() == 1) {
      state_.progress.best_acc1 = best->tensor().item<double>();
    } else {
      LOCKSTEP_ASSIGN_OR_RETURN(state_.progress.best_acc1, checkpoint::GetDouble(file, "best_acc1"));
    }
    if (config_.evaluate) return state_.learner->RestoreWeights(file);
    LOCKSTEP_RETURN_IF_ERROR(CheckOptimizer(file));
    LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(file, "virtual-ranks", config_.virtual_ranks));
    if (file.Find("sampler")) {
      LOCKSTEP_ASSIGN_OR_RETURN(const Value value, checkpoint::GetDict(file, "sampler"));
      LOCKSTEP_ASSIGN_OR_RETURN(const sampler::SamplerState place, sampler::ToSamplerState(value));
      LOCKSTEP_RETURN_IF_ERROR(state_.input->train_sampler->Restore(place));
    }
    LOCKSTEP_RETURN_IF_ERROR(state_.learner->Restore(file));
    return file.Find("epoch_sums") ? RestoreSums(file) : absl::OkStatus();
  }

  // Python's example saves no name.
  absl::Status CheckOptimizer(const Value& file) const {
    if (!file.Find("optimizer_name")) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string saved, checkpoint::GetString(file, "optimizer_name"));
    if (saved == config_.optimizer) return absl::OkStatus();
    return FlagError("optimizer", config_.optimizer, absl::StrCat(saved, ", as in the checkpoint"));
  }

  // Each virtual rank goes on from its own sums, so that the figures have the bits of an uninterrupted run.
  absl::Status RestoreSums(const Value& file) {
    LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor saved, checkpoint::GetTensor(file, "epoch_sums"));
    const at::Tensor& sums = state_.epoch_sums;
    if (saved.sizes() == sums.sizes()) return TorchStatus("epoch_sums", [&] { sums.copy_(saved); });
    return absl::InvalidArgumentError(absl::StrCat("epoch_sums: expected the shape [",
                                                   absl::StrJoin(sums.sizes(), ", "), "], found [",
                                                   absl::StrJoin(saved.sizes(), ", "), "]"));
  }

  absl::StatusOr<Value> Contents() const {
    const RunProgress& progress = state_.progress;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value::Entry> learned, state_.learner->State());
    std::vector<Value::Entry> entries = {{"epoch", progress.epoch},
                                         {"arch", config_.arch},
                                         {"best_acc1", at::full({}, progress.best_acc1, at::kDouble)},
                                         {"sampler", sampler::ToValue(progress.place)},
                                         {"optimizer_name", config_.optimizer},
                                         {"virtual_ranks", config_.virtual_ranks},
                                         {"epoch_sums", state_.epoch_sums}};
    entries.insert(entries.end(), learned.begin(), learned.end());
    return Value::Dict(entries);
  }

  RunState& state_;
  comm::ProcessGroup* const group_;
  const TrainConfig& config_;
  const bool saves_ = !config_.evaluate && !config_.dry_run;
  std::unique_ptr<checkpoint::Manager> manager_;      // null if Open() has opened nothing
  std::optional<checkpoint::CheckpointInfo> newest_;  // the checkpoint of --resume=auto
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_RUN_STATE_H_
