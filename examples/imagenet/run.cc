#include "lockstep/examples/imagenet/run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <signal.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/manager/preemption_notice.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store/store.h"
#include "lockstep/examples/imagenet/input.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/examples/imagenet/meters.h"
#include "lockstep/examples/imagenet/reporter.h"
#include "lockstep/examples/imagenet/run_state.h"
#include "lockstep/examples/imagenet/validation.h"

namespace lockstep::examples::imagenet {
namespace {

using checkpoint::PreemptionNotice;
using checkpoint::Value;

constexpr char kResumable[] = "stopped by a signal; go on with --resume=auto";

// A batch of a large network, or a file, may be under way on a CPU when another rank dies.
constexpr absl::Duration kLeaveTimeout = absl::Minutes(2);

// Lists the images, makes the model, and makes `world` keep the state, so `world` must not outlive it.
// Rank 0 prints its progress. The schedule has the length for the ranks of `place`. Returns the errors of Input and Learner.
absl::StatusOr<std::unique_ptr<RunState>> MakeState(const TrainConfig& config, elastic::World& world,
                                                    const Place& place) {
  const bool shows_progress = place.rank == 0;
  std::optional<Progress> progress;
  if (shows_progress) progress.emplace("train");
  if (shows_progress && !config.dummy) {
    const std::string listing = absl::StrCat("listing the images of ", config.data);
    std::cout << "=> " << Printable(listing) << std::endl;
    progress->Doing(listing);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Input> input, Input::Create(config));
  if (config.seed) torch::manual_seed(static_cast<uint64_t>(*config.seed));
  if (progress) progress->Doing("making the model");
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Learner> learner,
      Learner::Create(config, input->images.num_classes, input->StepsPerEpoch(place), place.device));
  for (int64_t epoch = 0; epoch < config.start_epoch; ++epoch)
    LOCKSTEP_RETURN_IF_ERROR(learner->rates().SkipEpoch());  // a resumed run has its own rate
  std::unique_ptr<RunState> state(new RunState{config, world, std::move(input), std::move(learner)});
  state->epoch_sums = PassMeters(std::max(config.virtual_ranks, 1)).TakeSums();
  LOCKSTEP_RETURN_IF_ERROR(state->learner->KeepIn(world));
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("progress", &state->progress));
  const auto save = [state = state.get()]() -> absl::StatusOr<Value> { return Value(state->epoch_sums); };
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("sums", save, [state = state.get()](const Value& value) {
    return TorchStatus("", [&] { state->epoch_sums = value.tensor().clone(); });
  }));
  return state;
}

// The training of one group of ranks: its epochs and its commits. If a rank dies, this object ends, and the next group
// has another one with the same RunState.
class Run {
 public:
  // `state` and `group` are borrowed.
  Run(RunState& state, comm::ProcessGroup* group) : state_(state), group_(group), checkpoints_(state, group) {}

  // Without a notice, the launcher's SIGTERM ends a rank that waits for the next group.
  ~Run() {
    state_.learner->Leave();
    if (state_.world.is_elastic() && state_.notice && !state_.notice->Received()) state_.notice.reset();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Trains, validates or checks the run, as the flags say. Every rank must call it.
  absl::Status Start() {
    LOCKSTEP_RETURN_IF_ERROR(Divide());
    LOCKSTEP_RETURN_IF_ERROR(checkpoints_.Open());
    const bool begins = state_.world.commits() == 0;
    LOCKSTEP_RETURN_IF_ERROR(begins ? Begin() : Continue());
    LOCKSTEP_RETURN_IF_ERROR(state_.learner->Distribute(group_));
    if (begins) LOCKSTEP_RETURN_IF_ERROR(state_.learner->Begin());
    if (state_.config.dry_run) return DryRun(state_, group_);
    if (!state_.config.evaluate) return TrainAll();
    LOCKSTEP_ASSIGN_OR_RETURN(const PassMeters meters, Validate(state_, group_));
    return ReportValidation(state_.progress.epoch, meters);
  }

 private:
  // If ranks regroup without --virtual-ranks, their batches keep their size on nodes with other numbers of ranks.
  absl::Status Divide() {
    const TrainConfig& config = state_.config;
    Place place = {group_->rank(), group_->size(), state_.world.generation().local_world_size, state_.learner->device(),
                   state_.progress.batch_size};
    if (state_.world.is_elastic() && config.virtual_ranks == 0 && place.batch_size == 0) {
      const at::Tensor size = at::full({1}, config.batch_size / place.local_ranks, at::kLong);
      LOCKSTEP_RETURN_IF_ERROR(group_->Broadcast(size, /*root=*/0));
      place.batch_size = size.item<int64_t>();
    }
    return state_.input->Divide(place);
  }

  // Begins the run, or a resumed one.
  absl::Status Begin() {
    RunProgress& progress = state_.progress;
    sampler::VirtualRankSampler& sampler = *state_.input->train_sampler;
    progress = {.epoch = state_.config.start_epoch, .batch_size = state_.input->batch_size};
    state_.epoch_sums.zero_();
    sampler.set_epoch(progress.epoch);
    LOCKSTEP_ASSIGN_OR_RETURN(const bool resumes, checkpoints_.Find());
    LOCKSTEP_RETURN_IF_ERROR(OpenFiles(/*append=*/resumes));
    LOCKSTEP_RETURN_IF_ERROR(checkpoints_.Load());
    progress.place = sampler.State(0);
    return state_.world.BeginAt(progress.step);
  }

  // Continues the run of the group before from the ranks' memory.
  absl::Status Continue() {
    LOCKSTEP_RETURN_IF_ERROR(OpenFiles(/*append=*/true));
    return state_.input->train_sampler->Restore(state_.progress.place);
  }

  // Opens the files that rank 0 writes beside checkpoints. `append` keeps the contents of the JSON file.
  absl::Status OpenFiles(bool append) {
    const bool begins = state_.world.commits() == 0;
    if (group_->rank() != 0) {
      state_.reporter.reset();
    } else if (begins || !state_.reporter) {
      LOCKSTEP_ASSIGN_OR_RETURN(state_.reporter, Reporter::Create(state_.config, append, begins));
    }
    return absl::OkStatus();
  }

  absl::Status TrainAll() {
    if (!state_.notice) {
      LOCKSTEP_ASSIGN_OR_RETURN(state_.notice, PreemptionNotice::Create({SIGTERM, SIGUSR1}));
    }
    LOCKSTEP_RETURN_IF_ERROR(checkpoints_.SaveIfDue());  // the group before may have ended before it saved
    while (state_.progress.epoch < state_.config.epochs) {
      LOCKSTEP_RETURN_IF_ERROR(TrainEpoch());
      LOCKSTEP_RETURN_IF_ERROR(EndEpoch());
    }
    return absl::OkStatus();
  }

  // Trains the rest of the epoch.
  absl::Status TrainEpoch() {
    Input& input = *state_.input;
    input.train_sampler->set_epoch(state_.progress.epoch);
    first_batch_ = input.BatchesDone();
    pass_batches_ = input.BatchesPerEpoch() - first_batch_;
    batches_ = 0;
    LOCKSTEP_RETURN_IF_ERROR(input.train->Start(state_.progress.epoch));
    if (state_.reporter) state_.reporter->BeginPass(Report());
    meters_ = PassMeters(input.parts);
    while (batches_ < pass_batches_) LOCKSTEP_RETURN_IF_ERROR(TrainStep());
    state_.PrintSkipped(*input.train);
    if (state_.progress.is_reported) return absl::OkStatus();
    return state_.Commit([&] {
      state_.progress.is_reported = true;
      return ReportEpoch();
    });
  }

  // Trains a step of the optimizer. It has at most --accum-steps batches of each virtual rank. A batch ends when it has
  // ended on this rank's last virtual rank. Then the figures of the first virtual rank are shown: on rank 0 it is
  // always the same.
  absl::Status TrainStep() {
    const Input& input = *state_.input;
    const int64_t before = batches_, parts = std::min(state_.config.accum_steps, pass_batches_ - before);
    std::vector<BatchResult> shown;
    LOCKSTEP_RETURN_IF_ERROR(
        state_.learner->ForEachVirtualRank(state_.progress.step, [&](int virtual_rank) -> absl::Status {
          for (int64_t part = 0; part < parts; ++part) {
            const bool last = part + 1 == parts;
            LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, TrainBatch(parts, last));
            meters_.Count(virtual_rank, result);
            if (virtual_rank == input.first()) shown.push_back(result);
            LOCKSTEP_RETURN_IF_ERROR(CheckLoss(result, before + part + 1));
            if (!last && virtual_rank + 1 == input.last()) LOCKSTEP_RETURN_IF_ERROR(EndBatch(shown[part]));
          }
          return absl::OkStatus();
        }));
    const at::Tensor sums = meters_.TakeSums();
    LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(sums));
    LOCKSTEP_RETURN_IF_ERROR(state_.Commit([&] { return ApplyStep(sums); }));
    LOCKSTEP_RETURN_IF_ERROR(EndBatch(shown.back()));  // its time includes the step of the optimizer
    return EndStep();
  }

  // If a rank does not notice another rank's death between collectives that are far apart, it is killed.
  absl::StatusOr<BatchResult> TrainBatch(int64_t parts, bool last) {
    LOCKSTEP_RETURN_IF_ERROR(group_->failure());
    data::Loader& loader = *state_.input->train;
    const int64_t consumed = loader.consumed();
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<data::Example> batch, loader.Next());
    if (!batch || loader.consumed() - consumed > state_.input->batch_size) {
      return absl::DataLossError("all images of a batch were left out, and ranks need equally many batches");
    }
    return state_.learner->Train(*batch, parts, last);
  }

  // Reports a loss that has become NaN or infinite, once in a run. Only the first rank to find it reports it: gradients
  // spread the NaN to the other ranks, which find it one step later. If the store does not answer, the rank reports it
  // too: a line too many is better than none.
  absl::Status CheckLoss(const BatchResult& result, int64_t batch) {
    if (std::isfinite(result.loss)) return absl::OkStatus();
    const std::string what = absl::StrCat("the loss of epoch ", state_.progress.epoch, ", batch ", first_batch_ + batch,
                                          " is ", result.loss);
    if (state_.config.terminate_on_nan) {
      return absl::DataLossError(absl::StrCat(what, ", at which --terminate-on-nan ends the run"));
    }
    if (std::exchange(knows_bad_loss_, true)) return absl::OkStatus();
    const auto finders = comm::Store::FromC10d(group_->store(), {}).Add("examples/loss_is_not_finite", 1);
    if (finders.ok() && *finders != 1) return absl::OkStatus();
    const std::string warning = absl::StrCat("warning: rank ", group_->rank(), ": ", what,
                                             ", and training goes on; --terminate-on-nan ends it");
    if (state_.reporter) {
      state_.reporter->Warn(warning);
    } else {
      std::cerr << absl::StrCat(warning, "\n");
    }
    return absl::OkStatus();
  }

  absl::Status ApplyStep(const at::Tensor& sums) {
    LOCKSTEP_RETURN_IF_ERROR(state_.learner->StepOptimizer());
    RunProgress& progress = state_.progress;
    state_.epoch_sums += state_.config.virtual_ranks > 0 ? sums : sums.sum(0, /*keepdim=*/true);
    ++progress.step;
    progress.place = state_.input->train_sampler->State(state_.input->train->consumed());
    const int64_t done = batches_ + 1, steps = (first_batch_ + done) / state_.config.accum_steps;
    const bool is_due = state_.config.checkpoint_every > 0 && steps % state_.config.checkpoint_every == 0;
    progress.is_saved = !is_due || done == pass_batches_;
    return absl::OkStatus();
  }

  absl::Status EndBatch(const BatchResult& shown) {
    ++batches_;
    meters_.Update(shown, state_.input->train->waited());
    return state_.reporter ? state_.reporter->Step(Report(), meters_) : absl::OkStatus();
  }

  absl::Status EndStep() {
    if (state_.reporter) LOCKSTEP_RETURN_IF_ERROR(state_.reporter->EndStep());
    LOCKSTEP_ASSIGN_OR_RETURN(const bool stop, state_.notice->ReceivedByAnyRank(group_));
    if (stop) state_.progress.is_saved = false;
    LOCKSTEP_RETURN_IF_ERROR(checkpoints_.SaveIfDue());
    return stop ? absl::CancelledError(kResumable) : absl::OkStatus();
  }

  absl::Status ReportEpoch() {
    if (!state_.reporter) return absl::OkStatus();
    const double images_per_second = meters_.ImagesPerSecond(state_.input->parts);
    meters_.Show(state_.epoch_sums);
    if (meters_.loss.count() == 0) return absl::OkStatus();
    return state_.reporter->Epoch(Report(), images_per_second, meters_);
  }

  // Validates, and completes the epoch.
  absl::Status EndEpoch() {
    LOCKSTEP_ASSIGN_OR_RETURN(const PassMeters meters, Validate(state_, group_));
    LOCKSTEP_RETURN_IF_ERROR(state_.Commit([&] {
      RunProgress& progress = state_.progress;
      sampler::VirtualRankSampler& sampler = *state_.input->train_sampler;
      const absl::Status reported = ReportValidation(progress.epoch + 1, meters);
      ++progress.epoch;
      progress.acc1 = meters.top1.average();
      progress.best_acc1 = std::max(*progress.acc1, progress.best_acc1);
      state_.learner->rates().EndEpoch(meters.top1.average());
      sampler.set_epoch(progress.epoch);
      progress.place = sampler.State(0);
      progress.is_reported = progress.is_saved = false;
      state_.epoch_sums.zero_();
      return reported;
    }));
    return checkpoints_.SaveIfDue();
  }

  // Reports a validation after `trained` epochs.
  absl::Status ReportValidation(int64_t trained, const PassMeters& meters) {
    if (!state_.reporter) return absl::OkStatus();
    return state_.reporter->Validation(state_.progress.epoch, trained * state_.input->BatchesPerEpoch(), meters);
  }

  StepReport Report() const {
    const int64_t epoch = state_.progress.epoch, batch = first_batch_ + batches_;
    return {.pass = absl::StrCat("Epoch: [", epoch, "]"),
            .epoch = epoch,
            .batch = batch,
            .batches = first_batch_ + pass_batches_,
            .step = epoch * state_.input->BatchesPerEpoch() + batch,
            .shares = state_.input->parts,
            .lr = state_.learner->rates().lr()};
  }

  RunState& state_;
  comm::ProcessGroup* const group_;
  Checkpoints checkpoints_;
  bool knows_bad_loss_ = false;
  // A pass is the part of an epoch that this group trains. Each virtual rank has these numbers of batches.
  int64_t first_batch_ = 0;         // batches of the epoch that were done before the pass
  int64_t pass_batches_ = 0;        // batches of the pass
  int64_t batches_ = 0;             // batches of the pass that are done
  PassMeters meters_{/*parts=*/1};  // figures of the pass
};

// A seed makes runs repeatable, for which cuDNN must not choose its algorithms by their speed. With virtual ranks a
// rank must not have more threads because it is alone on its node, since their number affects rounding.
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
  std::unique_ptr<RunState> state;  // outlives the world, which refers to it
  const int rank = environment.rank.value_or(0);
  // With --elastic, processes that wait to take a rank's place may come later.
  const Place place = {rank, environment.world_size.value_or(1), environment.local_world_size, device};
  if (!config.elastic) LOCKSTEP_RETURN_IF_ERROR(Input::BatchSizeOf(config, place).status());
  elastic::Options of_world = options;
  of_world.max_ranks = config.virtual_ranks;
  of_world.leave_timeout = std::min(kLeaveTimeout, of_world.timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<elastic::World> world, elastic::World::Join(of_world));
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { SetUpDevice(config, device); }));
  LOCKSTEP_ASSIGN_OR_RETURN(state, MakeState(config, *world, place));
  bool stops = false;
  absl::Status status = world->Run([&](comm::ProcessGroup* group) {
    const absl::Status trained = Run(*state, group).Start();
    stops = IsResumable(trained);
    return stops ? absl::OkStatus() : trained;  // all ranks end, and do not regroup
  });
  if (status.ok() && stops) status = absl::CancelledError(kResumable);
  // After an error too, since the trace may show the reason.
  if (state->reporter) status.Update(state->reporter->Close());
  return status;
}

bool IsResumable(const absl::Status& status) {
  return absl::IsCancelled(status) && absl::StrContains(status.message(), kResumable);
}

}  // namespace lockstep::examples::imagenet
