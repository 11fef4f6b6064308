#include "lockstep/examples/imagenet/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <signal.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/manager/preemption_notice.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/elastic/world.h"
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

// For a batch of a large network, or a file, that is under way on a CPU when another rank dies.
constexpr absl::Duration kLeaveTimeout = absl::Minutes(2);

// The same on all ranks. It changes in Trainer::Commit() only.
struct RunProgress {
  Position position;
  int64_t step = 0;             // steps of the optimizer that are done, in the whole run
  sampler::SamplerState place;  // in the training images
  int64_t batch_size = 0;       // of a virtual rank. 0: before the first step
  bool is_reported = false;     // the training of this epoch, after its last step
  bool is_saved = true;
  std::optional<double> acc1;  // of the checkpoint that is to be saved
};

class Trainer {
 public:
  // `says` whether this rank says what it does before there is a group.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainConfig& config, elastic::World& world, bool says,
                                                         c10::Device device);
  // Each generation calls it.
  absl::Status Run(comm::ProcessGroup* group);
  absl::Status EndFiles();

 private:
  Trainer(const TrainConfig& config, elastic::World& world, c10::Device device, std::unique_ptr<Input> input,
          std::unique_ptr<Learner> learner)
      : config_(config), world_(world), device_(device), input_(std::move(input)), learner_(std::move(learner)) {}

  int rank() const { return group_->rank(); }

  absl::Status KeepState();
  absl::Status Work();
  absl::Status Commit(const std::function<absl::Status()>& apply);
  absl::Status Divide();
  absl::Status BeginPretrained();
  absl::Status Begin();
  absl::Status GoOn();
  absl::Status ManageCheckpoints();
  absl::StatusOr<std::optional<CheckpointInfo>> Newest();
  absl::Status ResumeNewest(const CheckpointInfo& newest);
  absl::Status ResumeFile();
  absl::Status Resume(const std::string& path, const Value& snapshot);
  absl::Status ResumeSums(const at::Tensor& saved);
  at::Tensor EpochSums() const;
  absl::Status CheckFolderIsFree();
  absl::Status CheckLoss(const BatchResult& result, int64_t batch);
  absl::Status TrainAll();
  absl::Status TrainEpoch();
  absl::Status TrainStep(PassMeters& meters);
  absl::Status ApplyStep(const at::Tensor& sums);
  absl::StatusOr<BatchResult> TrainBatch(int64_t parts, bool last);
  absl::Status EndBatch(const BatchResult& shown, PassMeters& meters);
  absl::Status AfterStep();
  StepReport Report() const;
  absl::Status ReportEpoch(PassMeters& meters);
  absl::StatusOr<PassMeters> Validate();
  absl::Status ReportValidation(const PassMeters& meters);
  absl::Status EndEpoch(const PassMeters& validation);
  void SayWhatIsSkipped(const data::Loader& loader) const;
  absl::Status SaveIfDue();

  const TrainConfig config_;
  elastic::World& world_;
  const c10::Device device_;
  const std::unique_ptr<Input> input_;
  const std::unique_ptr<Learner> learner_;
  std::optional<Reporter> reporter_;  // on rank 0
  std::unique_ptr<PreemptionNotice> notice_;
  std::unique_ptr<StepTrace> trace_;  // on the first rank 0, if one is wanted
  RunProgress progress_;
  // PassMeters::TakeSums() of the epoch so far, of all ranks.
  at::Tensor sums_ = PassMeters(/*parts=*/1).TakeSums();
  int64_t run_steps_ = 0;  // of this process

  // Of this group.
  comm::ProcessGroup* group_ = nullptr;
  std::optional<FiniteLoss> finite_loss_;
  std::unique_ptr<Manager> manager_;  // null if this run neither saves nor looks for the newest checkpoint
  bool is_resumed_ = false;
  // Of each virtual rank: batches of the epoch that were done before this pass over it, that the pass has, and that are
  // done.
  int64_t first_batch_ = 0, pass_batches_ = 0, batches_ = 0;
};

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainConfig& config, elastic::World& world, bool says,
                                                         c10::Device device) {
  std::optional<Progress> progress;
  if (says) progress.emplace("train");
  if (says && !config.dummy) {
    const std::string listing = absl::StrCat("listing the images of ", config.data);
    std::cout << "=> " << Printable(listing) << std::endl;
    progress->Doing(listing);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Input> input, Input::Create(config));
  if (config.seed) torch::manual_seed(static_cast<uint64_t>(*config.seed));
  if (progress) progress->Doing("making the model");
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Learner> learner, Learner::Create(config, input->num_classes(), device));
  for (int64_t epoch = 0; epoch < config.start_epoch; ++epoch) learner->EndEpoch();  // a resumed run has its own rate
  std::unique_ptr<Trainer> trainer(new Trainer(config, world, device, std::move(input), std::move(learner)));
  LOCKSTEP_RETURN_IF_ERROR(trainer->KeepState());
  return trainer;
}

absl::Status Trainer::KeepState() {
  LOCKSTEP_RETURN_IF_ERROR(learner_->KeepIn(world_));
  LOCKSTEP_RETURN_IF_ERROR(world_.Keep("progress", &progress_));
  const auto save = [this]() -> absl::StatusOr<Value> { return Value(EpochSums()); };
  return world_.Keep("sums", save,
                     [this](const Value& value) { return TorchStatus("", [&] { sums_ = value.tensor().clone(); }); });
}

// What needs the group ends with it.
absl::Status Trainer::Run(comm::ProcessGroup* group) {
  group_ = group;
  finite_loss_.emplace(group, config_.terminate_on_nan);
  const absl::Cleanup leave = [&] {
    learner_->Leave();
    manager_.reset();
    group_ = nullptr;
    // The launcher may end a rank that waits for the next group.
    if (world_.is_elastic() && notice_ && !notice_->Received()) notice_.reset();
  };
  return Work();
}

absl::Status Trainer::Work() {
  LOCKSTEP_RETURN_IF_ERROR(Divide());
  LOCKSTEP_RETURN_IF_ERROR(ManageCheckpoints());
  const bool begins = world_.commits() == 0;
  LOCKSTEP_RETURN_IF_ERROR(begins ? Begin() : GoOn());
  if (begins) progress_.place = input_->sampler().State(0);
  if (begins) LOCKSTEP_RETURN_IF_ERROR(world_.BeginAt(progress_.step));
  LOCKSTEP_RETURN_IF_ERROR(learner_->Distribute(group_));
  if (begins) LOCKSTEP_RETURN_IF_ERROR(learner_->Begin());
  if (config_.dry_run) {
    if (reporter_) reporter_->Begin("=> dry run: the first batches ...");
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string summary,
                              DryRun(*input_, *learner_, group_, world_.generation().local_world_size));
    if (reporter_) reporter_->Say(summary);
    return absl::OkStatus();
  }
  if (!config_.evaluate) return TrainAll();
  LOCKSTEP_ASSIGN_OR_RETURN(const PassMeters meters, Validate());
  return ReportValidation(meters);
}

// Changes progress_, and what else outlives the ranks.
absl::Status Trainer::Commit(const std::function<absl::Status()>& apply) {
  return world_.Commit([&] { ThrowIfError(apply()); });
}

// If ranks regroup without --virtual-ranks, their batches keep their size on nodes with other numbers of ranks.
absl::Status Trainer::Divide() {
  Place place;
  place.rank = rank();
  place.ranks = group_->size();
  place.local_ranks = world_.generation().local_world_size;
  place.device = device_;
  place.batch_size = progress_.batch_size;
  if (world_.is_elastic() && config_.virtual_ranks == 0 && place.batch_size == 0) {
    const at::Tensor size = at::full({1}, config_.batch_size / place.local_ranks, at::kLong);
    LOCKSTEP_RETURN_IF_ERROR(group_->Broadcast(size, /*root=*/0));
    place.batch_size = size.item<int64_t>();
  }
  return input_->Divide(place);
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

absl::Status Trainer::BeginPretrained() {
  if (config_.pretrained.empty()) return absl::OkStatus();
  torch::nn::Module& net = *learner_->net();
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t classes, LoadPretrainedBackbone(config_.pretrained, net));
  if (classes == 0) return absl::OkStatus();
  const int64_t own = net.named_parameters().back().value().size(0);
  if (config_.evaluate && config_.resume.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(config_.pretrained, ": it has ", classes, " classes, and the data ",
                                                   own, ": expected the same number with --evaluate"));
  }
  if (rank() == 0) {
    std::cout << "=> --pretrained: " << Printable(config_.pretrained) << " has " << classes << " classes, and the data "
              << own << ": the layer " << LastLayer(net) << " begins anew" << std::endl;
  }
  return absl::OkStatus();
}

// At the beginning of the run, or of a resumed one.
absl::Status Trainer::Begin() {
  progress_ = RunProgress();
  progress_.position.epoch = config_.start_epoch;
  progress_.batch_size = input_->batch_size();
  sums_ = PassMeters(input_->parts()).TakeSums();
  input_->sampler().set_epoch(config_.start_epoch);
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
  LOCKSTEP_RETURN_IF_ERROR(Annotate(BeginPretrained(), "--pretrained"));
  if (newest) return Annotate(ResumeNewest(*newest), "--resume");
  if (!is_resumed_) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(ResumeFile(), "--resume"));
  return CheckFolderIsFree();
}

// With another group, from the ranks' memory.
absl::Status Trainer::GoOn() {
  if (rank() != 0) reporter_.reset();
  if (rank() == 0 && !reporter_) {
    LOCKSTEP_ASSIGN_OR_RETURN(reporter_, Reporter::Create(config_, /*append=*/true));
  }
  if (config_.virtual_ranks == 0) {  // the rows are the ranks', of which there may be another number now
    at::Tensor rows = PassMeters(input_->parts()).TakeSums();
    rows.slice(0, 0, 1).copy_(EpochSums());
    sums_ = rows;
  }
  LOCKSTEP_RETURN_IF_ERROR(input_->sampler().Restore(progress_.place));
  first_batch_ = input_->BatchesPerEpoch() - input_->BatchesRemaining();
  batches_ = 0;
  return absl::OkStatus();
}

absl::Status Trainer::ManageCheckpoints() {
  const bool saves = !config_.evaluate && !config_.dry_run;
  if (!saves && config_.resume != "auto") return absl::OkStatus();
  checkpoint::ManagerOptions options;
  options.keep_last = static_cast<int>(config_.keep_last);
  options.best_metric = "acc1";
  options.independent_of_ranks = config_.virtual_ranks > 0;
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
  progress_.step = newest.step;
  return absl::OkStatus();
}

// The file may be Python's, which has no step.
absl::Status Trainer::ResumeFile() {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value snapshot, checkpoint::Load(config_.resume, {.map_location = "cpu"}));
  LOCKSTEP_RETURN_IF_ERROR(Resume(config_.resume, snapshot));
  const absl::StatusOr<int64_t> step = checkpoint::GetInt(snapshot, {"lockstep", "step"});
  const int64_t epoch_steps = (input_->BatchesPerEpoch() + config_.accum_steps - 1) / config_.accum_steps;
  progress_.step = step.ok() ? *step : progress_.position.epoch * epoch_steps + first_batch_ / config_.accum_steps;
  return absl::OkStatus();
}

absl::Status Trainer::Resume(const std::string& path, const Value& snapshot) {
  if (reporter_) reporter_->Begin(absl::StrCat("=> loading checkpoint '", path, "'"));
  sampler::VirtualRankSampler* const sampler = config_.evaluate ? nullptr : &input_->sampler();
  const absl::StatusOr<Restored> restored = Restore(snapshot, config_, *learner_, sampler);
  if (!restored.ok()) return Annotate(restored.status(), path);
  progress_.position = restored->position;
  LOCKSTEP_RETURN_IF_ERROR(Annotate(ResumeSums(restored->epoch_sums), path));
  input_->sampler().set_epoch(progress_.position.epoch);
  first_batch_ = input_->BatchesPerEpoch() - input_->BatchesRemaining();
  if (reporter_ && !config_.evaluate) {
    reporter_->Say(absl::StrCat("=> loaded checkpoint '", path, "' (epoch ", progress_.position.epoch, ", ",
                                first_batch_, " of ", input_->BatchesPerEpoch(), " batches done)"));
  }
  return absl::OkStatus();
}

// Each virtual rank goes on from its own sums, so that the figures have the bits of an uninterrupted run.
absl::Status Trainer::ResumeSums(const at::Tensor& saved) {
  if (!saved.defined()) return absl::OkStatus();
  const int64_t rows = std::max(config_.virtual_ranks, 1);
  if (saved.dim() != 2 || saved.size(0) != rows || saved.size(1) != sums_.size(1)) {
    return absl::InvalidArgumentError(absl::StrCat("epoch_sums: expected the shape [", rows, ", ", sums_.size(1),
                                                   "], found [", absl::StrJoin(saved.sizes(), ", "), "]"));
  }
  return TorchStatus("epoch_sums", [&] { sums_.slice(0, 0, rows).copy_(saved); });
}

// With a row for each virtual rank, or one.
at::Tensor Trainer::EpochSums() const { return config_.virtual_ranks > 0 ? sums_ : sums_.sum(0, /*keepdim=*/true); }

// A later --resume=auto would take an earlier run's higher step for this run's newest checkpoint.
absl::Status Trainer::CheckFolderIsFree() {
  if (!manager_ || config_.evaluate || config_.dry_run) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, manager_->Steps());
  if (steps.empty() || steps.back() <= progress_.step) return absl::OkStatus();
  return FlagError("checkpoint-dir", config_.checkpoint_dir,
                   absl::StrCat("a folder without later checkpoints, but it has that of step ", steps.back(),
                                "; continue its run with --resume=auto, or choose another folder"));
}

absl::Status Trainer::TrainAll() {
  if (!notice_) {
    LOCKSTEP_ASSIGN_OR_RETURN(notice_, PreemptionNotice::Create({SIGTERM, SIGUSR1}));
  }
  LOCKSTEP_RETURN_IF_ERROR(SaveIfDue());  // the ranks before did not complete it
  while (progress_.position.epoch < config_.epochs) {
    LOCKSTEP_RETURN_IF_ERROR(TrainEpoch());
    LOCKSTEP_ASSIGN_OR_RETURN(const PassMeters validation, Validate());
    LOCKSTEP_RETURN_IF_ERROR(EndEpoch(validation));
  }
  return absl::OkStatus();
}

// From where it is to its end.
absl::Status Trainer::TrainEpoch() {
  data::Loader& loader = input_->train();
  const int64_t epoch = progress_.position.epoch;
  input_->sampler().set_epoch(epoch);
  pass_batches_ = input_->BatchesRemaining();
  LOCKSTEP_RETURN_IF_ERROR(loader.Start(epoch));
  if (reporter_) reporter_->BeginEpoch(epoch, first_batch_, first_batch_ + pass_batches_);
  PassMeters meters(input_->parts());
  for (batches_ = 0; batches_ < pass_batches_;) LOCKSTEP_RETURN_IF_ERROR(TrainStep(meters));
  SayWhatIsSkipped(loader);
  if (progress_.is_reported) return absl::OkStatus();
  return Commit([&] {
    progress_.is_reported = true;
    return ReportEpoch(meters);
  });
}

// A step of the optimizer. It has at most --accum-steps batches of each virtual rank. A batch ends when it has ended on
// this rank's last virtual rank. Then the figures of the first virtual rank are shown: on rank 0 it is always the same.
absl::Status Trainer::TrainStep(PassMeters& meters) {
  const int64_t before = batches_, parts = std::min(config_.accum_steps, pass_batches_ - before);
  std::vector<BatchResult> shown;
  LOCKSTEP_RETURN_IF_ERROR(learner_->ForEachVirtualRank(progress_.step, [&](int virtual_rank) -> absl::Status {
    for (int64_t part = 0; part < parts; ++part) {
      const bool last = part + 1 == parts;
      LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, TrainBatch(parts, last));
      meters.Count(virtual_rank, result);
      if (virtual_rank == input_->first()) shown.push_back(result);
      LOCKSTEP_RETURN_IF_ERROR(CheckLoss(result, before + part + 1));
      if (!last && virtual_rank + 1 == input_->last()) LOCKSTEP_RETURN_IF_ERROR(EndBatch(shown[part], meters));
    }
    return absl::OkStatus();
  }));
  const at::Tensor sums = meters.TakeSums();
  LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(sums));
  LOCKSTEP_RETURN_IF_ERROR(Commit([&] { return ApplyStep(sums); }));
  LOCKSTEP_RETURN_IF_ERROR(EndBatch(shown.back(), meters));  // its time includes the step of the optimizer
  return AfterStep();
}

absl::Status Trainer::ApplyStep(const at::Tensor& sums) {
  LOCKSTEP_RETURN_IF_ERROR(learner_->StepOptimizer());
  sums_ += sums;
  ++progress_.step;
  progress_.place = input_->sampler().State(input_->train().consumed());
  const int64_t done = batches_ + 1, steps = (first_batch_ + done) / config_.accum_steps;
  const bool is_due = config_.checkpoint_every > 0 && steps % config_.checkpoint_every == 0;
  progress_.is_saved = !is_due || done == pass_batches_;
  return absl::OkStatus();
}

// A rank that does not hear of another one's death between collectives that are far apart is killed.
absl::StatusOr<BatchResult> Trainer::TrainBatch(int64_t parts, bool last) {
  LOCKSTEP_RETURN_IF_ERROR(group_->failure());
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
  const std::string where = absl::StrCat("epoch ", progress_.position.epoch, ", batch ", first_batch_ + batch);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string warning, finite_loss_->Check(result.loss, where));
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
  report.epoch = progress_.position.epoch;
  report.batch = first_batch_ + batches_;
  report.batches = first_batch_ + pass_batches_;
  report.step = progress_.position.epoch * input_->BatchesPerEpoch() + report.batch;
  report.shares = input_->parts();
  report.lr = learner_->lr();
  return report;
}

// What a checkpoint holds here is whole.
absl::Status Trainer::AfterStep() {
  ++run_steps_;
  if (trace_) LOCKSTEP_RETURN_IF_ERROR(trace_->AfterStep(run_steps_));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool stop, notice_->ReceivedByAnyRank(group_));
  if (stop) progress_.is_saved = false;
  LOCKSTEP_RETURN_IF_ERROR(SaveIfDue());
  return stop ? absl::CancelledError(kResumable) : absl::OkStatus();
}

// Not collective.
absl::Status Trainer::ReportEpoch(PassMeters& meters) {
  const StepReport last = Report();
  const double images_per_second = last.ImagesPerSecond(meters);
  meters.Show(EpochSums());
  if (!reporter_ || meters.loss.count() == 0) return absl::OkStatus();
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

// Its meters are of all validation images, each of which counts once. Each virtual rank has its own batches, so that they
// do not depend on the number of ranks.
absl::StatusOr<PassMeters> Trainer::Validate() {
  data::Loader& loader = input_->validation();
  LOCKSTEP_RETURN_IF_ERROR(learner_->BeginEvaluation());
  PassMeters meters(input_->parts());
  StepReport report;
  report.batches = input_->ValidationBatches();
  report.shares = group_->size();
  if (reporter_) reporter_->BeginTest(report.batches);
  absl::Duration waited;
  for (int64_t virtual_rank = input_->first(); virtual_rank < input_->last(); ++virtual_rank) {
    LOCKSTEP_RETURN_IF_ERROR(input_->StartValidation(virtual_rank));
    while (true) {
      LOCKSTEP_RETURN_IF_ERROR(group_->failure());
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
  const at::Tensor sums = meters.TakeSums();
  LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(sums));
  meters.Show(sums);
  if (config_.max_skipped == 0 && meters.loss.count() != input_->validation_images()) {
    return absl::InternalError(
        absl::StrCat("validated ", meters.loss.count(), " images, there are ", input_->validation_images()));
  }
  return meters;
}

absl::Status Trainer::ReportValidation(const PassMeters& meters) {
  if (!reporter_) return absl::OkStatus();
  const StepReport last = Report();
  return reporter_->Validation(last.epoch, last.step, meters);
}

// Each rank tells its own.
void Trainer::SayWhatIsSkipped(const data::Loader& loader) const {
  for (const data::Loader::Skipped& skipped : loader.skipped()) {
    std::cerr << absl::StrCat("rank ", rank(), " skipped: ", Printable(skipped.error.message()), "\n");
  }
}

absl::Status Trainer::EndEpoch(const PassMeters& validation) {
  const double acc1 = validation.top1.average();
  const auto end = [&]() -> absl::Status {
    Position& position = progress_.position;
    const absl::Status reported = ReportValidation(validation);
    position = {position.epoch + 1, std::max(acc1, position.best_acc1)};
    learner_->EndEpoch();
    input_->sampler().set_epoch(position.epoch);
    progress_.place = input_->sampler().State(0);
    progress_.is_reported = progress_.is_saved = false;
    progress_.acc1 = acc1;
    sums_.zero_();
    return reported;
  };
  LOCKSTEP_RETURN_IF_ERROR(Commit(end));
  first_batch_ = batches_ = 0;
  return SaveIfDue();
}

// Only rank 0's snapshot is used. If a rank dies before all know that the file is in place, the others save it again.
absl::Status Trainer::SaveIfDue() {
  if (progress_.is_saved) return absl::OkStatus();
  Value snapshot = Value::Dict();
  if (rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(snapshot, Snapshot(config_, progress_.position, *learner_, progress_.place, EpochSums()));
  }
  std::map<std::string, double> metrics;
  if (progress_.acc1) metrics["acc1"] = *progress_.acc1;
  LOCKSTEP_RETURN_IF_ERROR(manager_->Save(progress_.step, snapshot, {std::move(metrics)}));
  return Commit([&] {
    progress_.is_saved = true;
    progress_.acc1.reset();
    return absl::OkStatus();
  });
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

absl::Status Train(const TrainConfig& config, const elastic::Options& options, const comm::RankEnvironment& environment,
                   c10::Device device) {
  std::unique_ptr<Trainer> trainer;  // the world refers to it
  const int rank = environment.rank.value_or(0);
  // With --elastic, processes that wait to take a rank's place may come later.
  const Place place = {rank, environment.world_size.value_or(1), environment.local_world_size, device};
  if (!config.elastic) LOCKSTEP_RETURN_IF_ERROR(Input::BatchSizeOf(config, place).status());
  elastic::Options of_world = options;
  of_world.max_ranks = config.virtual_ranks;
  of_world.leave_timeout = std::min(kLeaveTimeout, of_world.timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<elastic::World> world, elastic::World::Join(of_world));
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { SetUpDevice(config, device); }));
  LOCKSTEP_ASSIGN_OR_RETURN(trainer, Trainer::Create(config, *world, /*says=*/rank == 0, device));
  bool stops = false;
  absl::Status status = world->Run([&](comm::ProcessGroup* group) {
    const absl::Status trained = trainer->Run(group);
    stops = IsResumable(trained);
    return stops ? absl::OkStatus() : trained;  // all ranks end, and do not regroup
  });
  if (status.ok() && stops) status = absl::CancelledError(kResumable);
  status.Update(trainer->EndFiles());
  return status;
}

bool IsResumable(const absl::Status& status) {
  return absl::IsCancelled(status) && absl::StrContains(status.message(), kResumable);
}

}  // namespace lockstep::examples::imagenet
