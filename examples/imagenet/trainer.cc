#include "lockstep/examples/imagenet/trainer.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <signal.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/manager/preemption_notice.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/examples/imagenet/dry_run.h"
#include "lockstep/examples/imagenet/input.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/examples/imagenet/reporter.h"
#include "lockstep/examples/imagenet/snapshot.h"
#include "lockstep/examples/imagenet/step_trace.h"
#include "lockstep/examples/program/finite_loss.h"
#include "lockstep/examples/program/flag_error.h"
#include "lockstep/examples/program/pretrained.h"

namespace lockstep::examples::imagenet {
namespace {

using checkpoint::PreemptionNotice;
using Batch = torch::data::Example<>;

constexpr char kResumable[] = "stopped by a signal; go on with --resume=";

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
  absl::Status ChooseCheckpoint();
  absl::Status Resume();
  absl::Status CheckLoss(const BatchResult& result);
  absl::Status TrainAll();
  absl::Status TrainEpoch();
  absl::StatusOr<BatchResult> TrainBatch(const Batch& batch);
  absl::Status AfterBatch();
  StepReport Report() const;
  absl::Status ReportEpoch(const StepReport& last, PassMeters& meters);
  absl::StatusOr<double> Validate();
  absl::StatusOr<double> Validated(PassMeters& meters);
  absl::Status EndEpoch(double acc1);
  absl::Status EndFiles();
  void SayWhatIsSkipped(const data::Loader& loader) const;
  absl::Status Save(int64_t consumed, bool is_best);

  const TrainConfig config_;
  comm::ProcessGroup* const group_;
  const int local_ranks_;
  const std::unique_ptr<Input> input_;
  const std::unique_ptr<Learner> learner_;
  std::optional<Reporter> reporter_;  // on rank 0
  std::unique_ptr<PreemptionNotice> notice_;
  std::unique_ptr<StepTrace> trace_;  // on rank 0, if one is wanted
  FiniteLoss finite_loss_;
  std::string resume_;  // the checkpoint to go on from; empty: none
  Position position_;
  // Of this rank: batches of the epoch that were done before this pass over it, that the pass has, and that are done.
  int64_t first_batch_ = 0, pass_batches_ = 0, batches_ = 0;
  int64_t run_steps_ = 0;  // of this process
};

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainConfig& config, comm::ProcessGroup* group,
                                                         int local_ranks, c10::Device device) {
  Place place;
  place.rank = group ? group->rank() : 0;
  place.ranks = group ? group->size() : 1;
  place.local_ranks = local_ranks;
  place.device = device;
  if (place.rank == 0 && !config.dummy) std::cout << "=> listing the images of " << Printable(config.data) << std::endl;
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Input> input, Input::Create(config, place));
  if (config.seed) torch::manual_seed(static_cast<uint64_t>(*config.seed));
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Learner> learner, Learner::Create(config, input->num_classes(), device));
  return std::unique_ptr<Trainer>(new Trainer(config, group, local_ranks, std::move(input), std::move(learner)));
}

absl::Status Trainer::Run() {
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  if (config_.dry_run) {
    if (reporter_) reporter_->Say("=> dry run: the first batches ...");
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
    std::cerr << "warning: --trace-file=" << config_.trace_file << ": the run ended after " << run_steps_
              << " steps, so the trace lacks steps; --trace-begin=" << config_.trace_begin
              << " and --trace-steps=" << config_.trace_steps << " say which it has" << std::endl;
  }
  return status;
}

// Every rank reads the checkpoint before any wraps its model, and wrapping waits for all of them, so that rank 0 does
// not replace the file under another rank's hands.
absl::Status Trainer::Prepare() {
  position_.epoch = config_.start_epoch;
  LOCKSTEP_RETURN_IF_ERROR(ChooseCheckpoint());
  if (rank() == 0) {
    TrainConfig shown = config_;
    if (config_.dry_run) shown.json_file = shown.tensorboard_dir = "";
    LOCKSTEP_ASSIGN_OR_RETURN(reporter_, Reporter::Create(shown, /*append=*/!resume_.empty()));
    if (!config_.trace_file.empty() && !config_.dry_run) {
      LOCKSTEP_ASSIGN_OR_RETURN(trace_,
                                StepTrace::Create(config_.trace_file, config_.trace_begin, config_.trace_steps));
    }
  }
  if (!config_.pretrained.empty()) LOCKSTEP_RETURN_IF_ERROR(LoadPretrained(config_.pretrained, *learner_->net()));
  if (!resume_.empty()) LOCKSTEP_RETURN_IF_ERROR(Annotate(Resume(), "--resume"));
  return learner_->Distribute(group_);
}

// Rank 0 finds out for all, as it is the one that saves.
absl::Status Trainer::ChooseCheckpoint() {
  resume_ = config_.resume;
  if (resume_ != "auto") return absl::OkStatus();
  const std::string newest = SnapshotPath(config_.checkpoint_dir);
  const bool is_missing = access(newest.c_str(), F_OK) != 0 && errno == ENOENT;
  resume_ = rank() == 0 && is_missing ? "" : newest;
  if (group_) LOCKSTEP_RETURN_IF_ERROR(group_->BroadcastBytes(resume_, 0));
  if (!resume_.empty()) return absl::OkStatus();
  if (config_.evaluate) return FlagError("resume", "auto", absl::StrCat(newest, " to evaluate: there is none"));
  if (rank() == 0) {
    std::cout << "=> --resume=auto: there is no " << Printable(newest) << " yet, so training begins" << std::endl;
  }
  return absl::OkStatus();
}

absl::Status Trainer::Resume() {
  if (reporter_) reporter_->Say(absl::StrCat("=> loading checkpoint '", resume_, "'"));
  sampler::DistributedSampler* const sampler = config_.evaluate ? nullptr : &input_->sampler();
  LOCKSTEP_ASSIGN_OR_RETURN(position_, LoadSnapshot(resume_, config_.arch, *learner_, sampler));
  input_->sampler().set_epoch(position_.epoch);
  first_batch_ = input_->BatchesPerEpoch() - input_->BatchesRemaining();
  if (reporter_ && !config_.evaluate) {
    reporter_->Say(absl::StrCat("=> loaded checkpoint '", resume_, "' (epoch ", position_.epoch, ", ", first_batch_,
                                " of ", input_->BatchesPerEpoch(), " batches done)"));
  }
  return absl::OkStatus();
}

absl::Status Trainer::TrainAll() {
  LOCKSTEP_ASSIGN_OR_RETURN(notice_, PreemptionNotice::Create({SIGTERM, SIGUSR1}));
  if (resume_.empty()) {
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
  PassMeters meters;
  StepReport report;
  for (batches_ = 0; batches_ < pass_batches_;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Batch> batch, loader.Next());
    if (!batch) return absl::DataLossError("all images of a batch were left out, and ranks need equally many batches");
    ++batches_;
    LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, TrainBatch(*batch));
    meters.Update(result, loader.waited());
    LOCKSTEP_RETURN_IF_ERROR(CheckLoss(result));
    report = Report();
    if (reporter_) LOCKSTEP_RETURN_IF_ERROR(reporter_->Step(report, meters));
    LOCKSTEP_RETURN_IF_ERROR(AfterBatch());
  }
  SayWhatIsSkipped(loader);
  return ReportEpoch(report, meters);
}

absl::Status Trainer::CheckLoss(const BatchResult& result) {
  const std::string where = absl::StrCat("epoch ", position_.epoch, ", batch ", first_batch_ + batches_);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string warning, finite_loss_.Check(result.loss, where));
  if (warning.empty()) return absl::OkStatus();
  if (reporter_) {
    reporter_->Warn(warning);
  } else {
    std::cerr << warning << std::endl;
  }
  return absl::OkStatus();
}

StepReport Trainer::Report() const {
  StepReport report;
  report.epoch = position_.epoch;
  report.batch = first_batch_ + batches_;
  report.batches = first_batch_ + pass_batches_;
  report.step = position_.epoch * input_->BatchesPerEpoch() + report.batch;
  report.ranks = ranks();
  report.lr = learner_->lr();
  return report;
}

absl::StatusOr<BatchResult> Trainer::TrainBatch(const Batch& batch) {
  const int64_t before = (batches_ - 1) / config_.accum_steps * config_.accum_steps;  // batches of earlier steps
  const int64_t parts = std::min(config_.accum_steps, pass_batches_ - before);
  return learner_->Train(batch, parts, batches_ == before + parts);
}

// Between two steps of the optimizer: what a checkpoint holds is whole.
absl::Status Trainer::AfterBatch() {
  if (batches_ % config_.accum_steps != 0 && batches_ != pass_batches_) return absl::OkStatus();
  ++run_steps_;
  if (trace_) LOCKSTEP_RETURN_IF_ERROR(trace_->AfterStep(run_steps_));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool stop, notice_->ReceivedByAnyRank(group_));
  const int64_t steps = (first_batch_ + batches_) / config_.accum_steps;
  const bool is_due = config_.checkpoint_every > 0 && steps % config_.checkpoint_every == 0;
  if (stop || (is_due && batches_ != pass_batches_)) {
    LOCKSTEP_RETURN_IF_ERROR(Save(input_->train().consumed(), /*is_best=*/false));
  }
  if (!stop) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(kResumable, SnapshotPath(config_.checkpoint_dir)));
}

absl::Status Trainer::ReportEpoch(const StepReport& last, PassMeters& meters) {
  const double images_per_second = last.ImagesPerSecond(meters);
  LOCKSTEP_RETURN_IF_ERROR(meters.AllReduce(group_));
  if (!reporter_ || last.batch == 0) return absl::OkStatus();
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

// Top-1 over all validation images, each of which counts once, in percent.
absl::StatusOr<double> Trainer::Validate() {
  data::Loader& loader = input_->validation();
  LOCKSTEP_RETURN_IF_ERROR(loader.Start(/*epoch=*/0));
  LOCKSTEP_RETURN_IF_ERROR(learner_->BeginEvaluation());
  PassMeters meters;
  StepReport report;
  report.batches = input_->ValidationBatches();
  report.ranks = ranks();
  if (reporter_) reporter_->BeginTest(report.batches);
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Batch> batch, loader.Next());
    if (!batch) break;
    LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, learner_->Evaluate(*batch));
    meters.Update(result, loader.waited());
    ++report.batch;
    if (reporter_) reporter_->Test(report, meters);
  }
  SayWhatIsSkipped(loader);
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
    std::cerr << "rank " << rank() << " skipped: " << Printable(skipped.error.message()) << std::endl;
  }
}

absl::Status Trainer::EndEpoch(double acc1) {
  const bool is_best = acc1 >= position_.best_acc1;  // so there is one after the first epoch
  position_ = {position_.epoch + 1, std::max(acc1, position_.best_acc1)};
  first_batch_ = batches_ = 0;
  learner_->EndEpoch();
  input_->sampler().set_epoch(position_.epoch);
  return Save(/*consumed=*/0, is_best);
}

absl::Status Trainer::Save(int64_t consumed, bool is_best) {
  absl::Status saved;
  if (rank() == 0) {
    saved = SaveSnapshot(config_.checkpoint_dir, config_.arch, position_, *learner_, input_->sampler().State(consumed),
                         is_best);
  }
  return comm::Agree(group_, "saving the checkpoint", saved);
}

// A seed makes runs repeatable, for which cuDNN must not choose its algorithms by their speed.
void SetUpDevice(const TrainConfig& config, c10::Device device) {
  at::globalContext().setBenchmarkCuDNN(!config.seed);
  at::globalContext().setDeterministicCuDNN(config.seed.has_value());
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
