#include "lockstep/examples/imagenet/run_state.h"

#include <torch/utils.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/examples/imagenet/meters.h"

namespace lockstep::examples::imagenet {

using checkpoint::Value;

absl::StatusOr<std::unique_ptr<RunState>> RunState::Create(const TrainConfig& config, elastic::World& world,
                                                           bool shows_progress, c10::Device device) {
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
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Learner> learner, Learner::Create(config, input->num_classes(), device));
  for (int64_t epoch = 0; epoch < config.start_epoch; ++epoch) learner->EndEpoch();  // a resumed run has its own rate
  std::unique_ptr<RunState> state(new RunState{config, world, std::move(input), std::move(learner), RunProgress(),
                                               PassMeters(/*parts=*/1).TakeSums(), std::nullopt, nullptr, nullptr});
  LOCKSTEP_RETURN_IF_ERROR(state->learner->KeepIn(world));
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("progress", &state->progress));
  const auto save = [state = state.get()]() -> absl::StatusOr<Value> { return Value(state->EpochSums()); };
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("sums", save, [state = state.get()](const Value& value) {
    return TorchStatus("", [&] { state->epoch_sums = value.tensor().clone(); });
  }));
  return state;
}

absl::Status RunState::Commit(const std::function<absl::Status()>& apply) {
  return world.Commit([&] { ThrowIfError(apply()); });
}

void RunState::Reset() {
  progress = RunProgress();
  progress.epoch = config.start_epoch;
  progress.batch_size = input->batch_size();
  epoch_sums = PassMeters(input->parts()).TakeSums();
  input->sampler().set_epoch(config.start_epoch);
}

void RunState::EndEpoch(double acc1) {
  ++progress.epoch;
  progress.best_acc1 = std::max(acc1, progress.best_acc1);
  learner->EndEpoch();
  input->sampler().set_epoch(progress.epoch);
  progress.place = input->sampler().State(0);
  progress.is_reported = progress.is_saved = false;
  progress.acc1 = acc1;
  epoch_sums.zero_();
}

void RunState::DivideSums() {
  if (config.virtual_ranks > 0) return;
  const at::Tensor rows = PassMeters(input->parts()).TakeSums();
  rows.slice(0, 0, 1).copy_(EpochSums());
  epoch_sums = rows;
}

at::Tensor RunState::EpochSums() const {
  return config.virtual_ranks > 0 ? epoch_sums : epoch_sums.sum(0, /*keepdim=*/true);
}

absl::Status RunState::OpenFiles(bool append) {
  const bool begins = world.commits() == 0;
  if (world.generation().rank != 0) reporter.reset();
  if (world.generation().rank != 0 || (reporter && !begins)) return absl::OkStatus();
  TrainConfig shown = config;
  if (config.dry_run) shown.json_file = shown.tensorboard_dir = "";
  LOCKSTEP_ASSIGN_OR_RETURN(reporter, Reporter::Create(shown, append));
  if (config.trace_file.empty() || config.dry_run || !begins) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(trace, StepTrace::Create(config.trace_file, config.trace_begin, config.trace_steps));
  return absl::OkStatus();
}

absl::Status RunState::CloseFiles() {
  absl::Status status = trace ? trace->Finish() : absl::OkStatus();
  if (reporter) status.Update(reporter->Close());
  if (trace && status.ok() && !trace->complete()) {
    std::cerr << absl::StrCat("warning: --trace-file=", config.trace_file, ": the run ended after ", trace->steps(),
                              " steps, so the trace lacks steps; --trace-begin=", config.trace_begin,
                              " and --trace-steps=", config.trace_steps, " say which it has\n");
  }
  return status;
}

void RunState::PrintSkipped(const data::Loader& loader) const {
  for (const data::Loader::Skipped& skipped : loader.skipped()) {
    std::cerr << absl::StrCat("rank ", world.generation().rank, " skipped: ", Printable(skipped.error.message()), "\n");
  }
}

}  // namespace lockstep::examples::imagenet
