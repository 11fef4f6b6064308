#include "lockstep/examples/imagenet/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <signal.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/manager/preemption_notice.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/examples/imagenet/dry_run.h"
#include "lockstep/examples/imagenet/input.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/examples/imagenet/reporter.h"
#include "lockstep/examples/imagenet/snapshot.h"
#include "lockstep/examples/imagenet/step_trace.h"
#include "lockstep/examples/program/finite_loss.h"
#include "lockstep/examples/program/pretrained.h"

namespace lockstep::examples::imagenet {
namespace {

using checkpoint::CheckpointInfo;
using checkpoint::Manager;
using checkpoint::PreemptionNotice;
using checkpoint::Value;
using Batch = data::Example;

constexpr char kResumable[] = "stopped by a signal; go on with --resume=auto";

class Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainConfig& config, comm::ProcessGroup* group,
                                                         int local_ranks, c10::Device device);
  absl::Status Run();

 private:
  Trainer(const TrainConfig& config, comm::ProcessGroup* group, int local_ranks, std::unique_ptr<Input> input,
          std::unique_ptr<Learner> learner)
      : config_(config),
        group_(group),
        local_ranks_(local_ranks),
        input_(std::move(input)),
        learner_(std::move(learner)),
        finite_loss_(group, config.terminate_on_nan) {}

  int rank() const { return group_ ? group_->rank() : 0; }
  int ranks() const { return group_ ? group_->size() : 1; }

  absl::Status Prepare();
  absl::Status ManageCheckpoints();
  absl::StatusOr<std::optional<CheckpointInfo>> Newest();
  absl::Status ResumeNewest(const CheckpointInfo& newest);
  absl::Status ResumeFile();
  absl::Status Resume(const std::string& path, const Value& snapshot);
  absl::Status CheckFolderIsFree();
  absl::Status CheckLoss(const BatchResult& result, int64_t batch);
  absl::Status TrainAll();
  absl::Status TrainEpoch();
  absl::Status TrainStep(PassMeters& meters);
  absl::StatusOr<BatchResult> TrainBatch(int64_t parts, bool last);
  absl::Status EndBatch(const BatchResult& shown, PassMeters& meters);
  absl::Status AfterStep();
  StepReport Report() const;
  absl::Status ReportEpoch(PassMeters& meters);
  absl::StatusOr<double> Validate();
  absl::StatusOr<double> Validated(PassMeters& meters);
  absl::Status EndEpoch(double acc1);
  absl::Status EndFiles();
  void SayWhatIsSkipped(const data::Loader& loader) const;
  absl::Status Save(int64_t consumed, std::map<std::string, double> metrics = {});

  const TrainConfig config_;
  comm::ProcessGroup* const group_;
  const int local_ranks_;
  const std::unique_ptr<Input> input_;
  const std::unique_ptr<Learner> learner_;
  std::optional<Reporter> reporter_;  // on rank 0
  std::unique_ptr<PreemptionNotice> notice_;
  std::unique_ptr<StepTrace> trace_;  // on rank 0, if one is wanted
  FiniteLoss finite_loss_;
  std::unique_ptr<Manager> manager_;  // null if this run neither saves nor looks for the newest checkpoint
  bool is_resumed_ = false;
  Position position_;
  // Of each virtual rank: batches of the epoch that were done before this pass over it, that the pass has, and that are
  // done.
  int64_t first_batch_ = 0, pass_batches_ = 0, batches_ = 0;
  int64_t run_steps_ = 0;      // of this process
  int64_t resumed_steps_ = 0;  // of the run before this process
};

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainConfig& config, comm::ProcessGroup* group,
                                                         int local_ranks, c10::Device device) {
  Place place;
  place.rank = group ? group->rank() : 0;
  place.ranks = group ? group->size() : 1;
  place.local_ranks = local_ranks;
  place.device = device;
  std::optional<Progress> progress;
  if (place.rank == 0) progress.emplace("train");
  if (place.rank == 0 && !config.dummy) {
    const std::string listing = absl::StrCat("listing the images of ", config.data);
    std::cout << "=> " << Printable(listing) << std::endl;
    progress->Doing(listing);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Input> input, Input::Create(config, place));
  if (config.seed) torch::manual_seed(static_cast<uint64_t>(*config.seed));
  if (progress) progress->Doing("making the model");
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Learner> learner, Learner::Create(config, input->num_classes(), device));
  return std::unique_ptr<Trainer>(new Trainer(config, group, local_ranks, std::move(input), std::move(learner)));
}

absl::Status Trainer::Run() {
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  if (config_.dry_run) {
    if (reporter_) reporter_->Begin("=> dry run: the first batches ...");
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string summary, DryRun(*input_, *learner_, group_, local_ranks_));
    if (reporter_) reporter_->Say(summary);
    return absl::OkStatus();
  }
  absl::Status status = config_.evaluate ? Validate().status() : TrainAll();
  status.Update(EndFiles());
  return status;
}

// Also where the run ends with an error: what was traced until then may show why.
absl::Status Trainer::EndFiles() {
  absl::Status status = trace_ ? trace_->Finish() : absl::OkStatus();
  if (reporter_) status.Update(reporter_->Close());
  if (trace_ && status.ok() && !trace_->complete()) {
    std::cerr << absl::StrCat("warning: --trace-file=", config_.trace_file, ": the run ended after ", run_steps_,
                              " steps, so the trace lacks steps; --trace-begin=", config_.trace_begin,
                              " and --trace-steps=", config_.trace_steps, " say which it has\n");
  }
  return status;
}

absl::Status Trainer::Prepare() {
  position_.epoch = config_.start_epoch;
  LOCKSTEP_RETURN_IF_ERROR(ManageCheckpoints());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> newest, Newest());
  is_resumed_ = newest || (!config_.resume.empty() && config_.resume != "auto");
  if (!is_resumed_) LOCKSTEP_RETURN_IF_ERROR(CheckFolderIsFree());  // before the reporter empties files
  if (rank() == 0) {
    TrainConfig shown = config_;
    if (config_.dry_run) shown.json_file = shown.tensorboard_dir = "";
    LOCKSTEP_ASSIGN_OR_RETURN(reporter_, Reporter::Create(shown, /*append=*/is_resumed_));
    if (!config_.trace_file.empty() && !config_.dry_run) {
      LOCKSTEP_ASSIGN_OR_RETURN(trace_,
                                StepTrace::Create(config_.trace_file, config_.trace_begin, config_.trace_steps));
    }
  }
  if (!config_.pretrained.empty()) LOCKSTEP_RETURN_IF_ERROR(LoadPretrained(config_.pretrained, *learner_->net()));
  if (newest) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(ResumeNewest(*newest), "--resume"));
  } else if (is_resumed_) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(ResumeFile(), "--resume"));
    LOCKSTEP_RETURN_IF_ERROR(CheckFolderIsFree());
  }
  return learner_->Distribute(group_);
}

absl::Status Trainer::ManageCheckpoints() {
  const bool saves = !config_.evaluate && !config_.dry_run;
  if (!saves && config_.resume != "auto") return absl::OkStatus();
  checkpoint::ManagerOptions options;
  options.keep_last = static_cast<int>(config_.keep_last);
  options.best_metric = "acc1";
  LOCKSTEP_ASSIGN_OR_RETURN(manager_, Manager::Create(config_.checkpoint_dir, group_, options));
  return absl::OkStatus();
}

// The checkpoint that --resume=auto means.
absl::StatusOr<std::optional<CheckpointInfo>> Trainer::Newest() {
  if (config_.resume != "auto") return std::nullopt;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> newest, manager_->Latest());
  if (newest) return newest;
  if (config_.evaluate) {
    return FlagError("resume", "auto", absl::StrCat("a checkpoint in ", config_.checkpoint_dir, ", which has none"));
  }
  if (rank() == 0) {
    std::cout << "=> --resume=auto: there is no checkpoint in " << Printable(config_.checkpoint_dir)
              << " yet, so training begins" << std::endl;
  }
  return std::nullopt;
}

absl::Status Trainer::ResumeNewest(const CheckpointInfo& newest) {
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Restored restored, manager_->Load(newest, {.map_location = "cpu"}));
  LOCKSTEP_RETURN_IF_ERROR(Resume(newest.path, restored.value));
  resumed_steps_ = newest.step;
  return absl::OkStatus();
}

// The file may be Python's, which has no step.
absl::Status Trainer::ResumeFile() {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value snapshot, checkpoint::Load(config_.resume, {.map_location = "cpu"}));
  LOCKSTEP_RETURN_IF_ERROR(Resume(config_.resume, snapshot));
  const absl::StatusOr<int64_t> step = checkpoint::GetInt(snapshot, {"lockstep", "step"});
  const int64_t epoch_steps = (input_->BatchesPerEpoch() + config_.accum_steps - 1) / config_.accum_steps;
  resumed_steps_ = step.ok() ? *step : position_.epoch * epoch_steps + first_batch_ / config_.accum_steps;
  return absl::OkStatus();
}

absl::Status Trainer::Resume(const std::string& path, const Value& snapshot) {
  if (reporter_) reporter_->Begin(absl::StrCat("=> loading checkpoint '", path, "'"));
  sampler::VirtualRankSampler* const sampler = config_.evaluate ? nullptr : &input_->sampler();
  absl::StatusOr<Position> position = Restore(snapshot, config_, *learner_, sampler);
  if (!position.ok()) return Annotate(position.status(), path);
  position_ = *position;
  input_->sampler().set_epoch(position_.epoch);
  first_batch_ = input_->BatchesPerEpoch() - input_->BatchesRemaining();
  if (reporter_ && !config_.evaluate) {
    reporter_->Say(absl::StrCat("=> loaded checkpoint '", path, "' (epoch ", position_.epoch, ", ", first_batch_,
                                " of ", input_->BatchesPerEpoch(), " batches done)"));
  }
  return absl::OkStatus();
}

// A later --resume=auto would take an earlier run's higher step for this run's newest checkpoint.
absl::Status Trainer::CheckFolderIsFree() {
  if (!manager_ || config_.evaluate || config_.dry_run) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, manager_->Steps());
  if (steps.empty() || steps.back() <= resumed_steps_) return absl::OkStatus();
  return FlagError("checkpoint-dir", config_.checkpoint_dir,
                   absl::StrCat("a folder without later checkpoints, but it has that of step ", steps.back(),
                                "; continue its run with --resume=auto, or choose another folder"));
}

absl::Status Trainer::TrainAll() {
  LOCKSTEP_ASSIGN_OR_RETURN(notice_, PreemptionNotice::Create({SIGTERM, SIGUSR1}));
  if (!is_resumed_) {
    for (int64_t epoch = 0; epoch < config_.start_epoch; ++epoch) learner_->EndEpoch();
  }
  while (position_.epoch < config_.epochs) {
    LOCKSTEP_RETURN_IF_ERROR(TrainEpoch());
    LOCKSTEP_ASSIGN_OR_RETURN(const double acc1, Validate());
    LOCKSTEP_RETURN_IF_ERROR(EndEpoch(acc1));
  }
  return absl::OkStatus();
}

// From where position_ is to the end of its epoch.
absl::Status Trainer::TrainEpoch() {
  data::Loader& loader = input_->train();
  input_->sampler().set_epoch(position_.epoch);
  pass_batches_ = input_->BatchesRemaining();
  LOCKSTEP_RETURN_IF_ERROR(loader.Start(position_.epoch));
  if (reporter_) reporter_->BeginEpoch(position_.epoch, first_batch_, first_batch_ + pass_batches_);
  PassMeters meters(input_->share());
  for (batches_ = 0; batches_ < pass_batches_;) LOCKSTEP_RETURN_IF_ERROR(TrainStep(meters));
  SayWhatIsSkipped(loader);
  return ReportEpoch(meters);
}

// A step of the optimizer. It has at most --accum-steps batches of each virtual rank. A batch ends when it has ended on
// this rank's last virtual rank. Then the figures of the first virtual rank are shown: on rank 0 it is always the same.
absl::Status Trainer::TrainStep(PassMeters& meters) {
  const VirtualShare& share = input_->share();
  const int64_t before = batches_, parts = std::min(config_.accum_steps, pass_batches_ - before);
  std::vector<BatchResult> shown;
  LOCKSTEP_RETURN_IF_ERROR(learner_->Step(resumed_steps_ + run_steps_, [&](int virtual_rank) -> absl::Status {
    for (int64_t part = 0; part < parts; ++part) {
      const bool last = part + 1 == parts;
      LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, TrainBatch(parts, last));
      meters.Count(virtual_rank, result);
      if (virtual_rank == share.first) shown.push_back(result);
      LOCKSTEP_RETURN_IF_ERROR(CheckLoss(result, before + part + 1));
      if (!last && virtual_rank + 1 == share.last) LOCKSTEP_RETURN_IF_ERROR(EndBatch(shown[part], meters));
    }
    return absl::OkStatus();
  }));
  LOCKSTEP_RETURN_IF_ERROR(EndBatch(shown.back(), meters));  // its time includes the step of the optimizer
  return AfterStep();
}

absl::StatusOr<BatchResult> Trainer::TrainBatch(int64_t parts, bool last) {
  data::Loader& loader = input_->train();
  const int64_t consumed = loader.consumed();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Batch> batch, loader.Next());
  if (!batch || loader.consumed() - consumed > input_->batch_size()) {
    return absl::DataLossError("all images of a batch were left out, and ranks need equally many batches");
  }
  return learner_->Train(*batch, parts, last);
}

absl::Status Trainer::EndBatch(const BatchResult& shown, PassMeters& meters) {
  ++batches_;
  meters.Update(shown, input_->train().waited());
  return reporter_ ? reporter_->Step(Report(), meters) : absl::OkStatus();
}

absl::Status Trainer::CheckLoss(const BatchResult& result, int64_t batch) {
  const std::string where = absl::StrCat("epoch ", position_.epoch, ", batch ", first_batch_ + batch);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string warning, finite_loss_.Check(result.loss, where));
  if (warning.empty()) return absl::OkStatus();
  if (reporter_) {
    reporter_->Warn(warning);
  } else {
    std::cerr << absl::StrCat(warning, "\n");
  }
  return absl::OkStatus();
}

StepReport Trainer::Report() const {
  StepReport report;
  report.epoch = position_.epoch;
  report.batch = first_batch_ + batches_;
  report.batches = first_batch_ + pass_batches_;
  report.step = position_.epoch * input_->BatchesPerEpoch() + report.batch;
  report.shares = input_->share().all;
  report.lr = learner_->lr();
  return report;
}

// What a checkpoint holds here is whole.
absl::Status Trainer::AfterStep() {
  ++run_steps_;
  if (trace_) LOCKSTEP_RETURN_IF_ERROR(trace_->AfterStep(run_steps_));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool stop, notice_->ReceivedByAnyRank(group_));
  const int64_t steps = (first_batch_ + batches_) / config_.accum_steps;
  const bool is_due = config_.checkpoint_every > 0 && steps % config_.checkpoint_every == 0;
  if (stop || (is_due && batches_ != pass_batches_)) {
    LOCKSTEP_RETURN_IF_ERROR(Save(input_->train().consumed()));
  }
  if (!stop) return absl::OkStatus();
  return absl::CancelledError(kResumable);
}

absl::Status Trainer::ReportEpoch(PassMeters& meters) {
  const StepReport last = Report();
  const double images_per_second = last.ImagesPerSecond(meters);
  LOCKSTEP_RETURN_IF_ERROR(meters.AllReduce(group_));
  if (!reporter_ || batches_ == 0) return absl::OkStatus();
  EpochReport report;
  report.epoch = last.epoch;
  report.step = last.step;
  report.train_loss = meters.loss.average();
  report.train_acc1 = meters.top1.average();
  report.images_per_second = images_per_second;
  report.data_share = StepReport::DataShare(meters);
  report.lr = last.lr;
  report.time = absl::Seconds(meters.time.sum());
  return reporter_->Epoch(report);
}

// Top-1 over all validation images, each of which counts once, in percent. Each virtual rank has its own batches, so that
// they do not depend on the number of ranks.
absl::StatusOr<double> Trainer::Validate() {
  data::Loader& loader = input_->validation();
  LOCKSTEP_RETURN_IF_ERROR(learner_->BeginEvaluation());
  PassMeters meters(input_->share());
  StepReport report;
  report.batches = input_->ValidationBatches();
  report.shares = ranks();
  if (reporter_) reporter_->BeginTest(report.batches);
  absl::Duration waited;
  for (int virtual_rank = input_->share().first; virtual_rank < input_->share().last; ++virtual_rank) {
    LOCKSTEP_RETURN_IF_ERROR(input_->StartValidation(virtual_rank));
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Batch> batch, loader.Next());
      if (!batch) break;
      LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, learner_->Evaluate(*batch));
      meters.Count(virtual_rank, result);
      meters.Update(result, waited + loader.waited());
      ++report.batch;
      if (reporter_) reporter_->Test(report, meters);
    }
    waited += loader.waited();
    SayWhatIsSkipped(loader);
  }
  return Validated(meters);
}

absl::StatusOr<double> Trainer::Validated(PassMeters& meters) {
  LOCKSTEP_RETURN_IF_ERROR(meters.AllReduce(group_));
  if (config_.max_skipped == 0 && meters.loss.count() != input_->validation_images()) {
    return absl::InternalError(
        absl::StrCat("validated ", meters.loss.count(), " images, there are ", input_->validation_images()));
  }
  if (reporter_) {
    const int64_t step = position_.epoch * input_->BatchesPerEpoch() + first_batch_ + batches_;
    LOCKSTEP_RETURN_IF_ERROR(reporter_->Validation(position_.epoch, step, meters));
  }
  return meters.top1.average();
}

// Each rank tells its own.
void Trainer::SayWhatIsSkipped(const data::Loader& loader) const {
  for (const data::Loader::Skipped& skipped : loader.skipped()) {
    std::cerr << absl::StrCat("rank ", rank(), " skipped: ", Printable(skipped.error.message()), "\n");
  }
}

absl::Status Trainer::EndEpoch(double acc1) {
  position_ = {position_.epoch + 1, std::max(acc1, position_.best_acc1)};
  first_batch_ = batches_ = 0;
  learner_->EndEpoch();
  input_->sampler().set_epoch(position_.epoch);
  return Save(/*consumed=*/0, {{"acc1", acc1}});
}

// Only rank 0's snapshot is used.
absl::Status Trainer::Save(int64_t consumed, std::map<std::string, double> metrics) {
  Value snapshot = Value::Dict();
  if (rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(snapshot, Snapshot(config_, position_, *learner_, input_->sampler().State(consumed)));
  }
  return manager_->Save(resumed_steps_ + run_steps_, snapshot, {std::move(metrics)});
}

// A seed makes runs repeatable, for which cuDNN must not choose its algorithms by their speed. With virtual ranks a rank
// must not have more threads because it is alone on its node, since their number affects rounding.
void SetUpDevice(const TrainConfig& config, c10::Device device) {
  const bool repeatable = config.seed.has_value() || config.virtual_ranks > 0;
  at::globalContext().setBenchmarkCuDNN(!repeatable);
  at::globalContext().setDeterministicCuDNN(repeatable);
  if (config.virtual_ranks > 0 && !std::getenv("OMP_NUM_THREADS")) at::set_num_threads(1);
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

}  // namespace

absl::Status Train(const TrainConfig& config, comm::ProcessGroup* group, int local_ranks, c10::Device device) {
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { SetUpDevice(config, device); }));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                            Trainer::Create(config, group, local_ranks, device));
  return trainer->Run();
}

bool IsResumable(const absl::Status& status) {
  return absl::IsCancelled(status) && absl::StrContains(status.message(), kResumable);
}

}  // namespace lockstep::examples::imagenet
