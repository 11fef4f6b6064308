#include "lockstep/examples/imagenet/validation.h"

#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/examples/program/peak_memory.h"

namespace lockstep::examples::imagenet {
namespace {

using data::Example;

// Returns the first batch of a loader that has been `started`.
absl::StatusOr<Example> First(const absl::Status& started, data::Loader& loader, absl::string_view which) {
  LOCKSTEP_RETURN_IF_ERROR(started);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Example> batch, loader.Next());
  if (!batch) return absl::NotFoundError(absl::StrCat("this rank has no ", which, " images"));
  return *batch;
}

// The bytes of memory that programs can allocate on this machine without swapping.
int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    int64_t kilobytes;
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

std::string Megabytes(int64_t bytes) { return absl::StrFormat("%.0f MB", static_cast<double>(bytes) / 1e6); }

// Computes on the batches, and describes the run.
absl::StatusOr<std::string> Try(RunState& state, int ranks, const Example& training, const Example& validation) {
  const Input& input = *state.input;
  Learner& learner = *state.learner;
  const bool on_cpu = learner.device().is_cpu();
  const PeakMemory peak;
  std::optional<double> loss;
  LOCKSTEP_RETURN_IF_ERROR(learner.ForEachVirtualRank(/*step=*/0, [&](int) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, learner.Train(training, /*parts=*/1, /*last=*/true));
    if (!loss) loss = result.loss;
    return absl::OkStatus();
  }));
  const int64_t bytes = learner.StateBytes() + peak.bytes();
  LOCKSTEP_RETURN_IF_ERROR(learner.Evaluate(validation).status());
  const int64_t available = AvailableMemory(), local_ranks = state.world.generation().local_world_size;
  if (on_cpu && bytes * local_ranks > available) {
    return absl::ResourceExhaustedError(absl::StrCat("a rank needs ", Megabytes(bytes), " and there are ", local_ranks,
                                                     " here, but ", Megabytes(available), " of memory are left"));
  }
  return absl::StrFormat(
      "dry run: %d %s on %s, %d training and %d validation images of %d classes, %d batches of %d x %d an epoch; "
      "loss of the first batch %.4f; a rank needs %s for weights, gradients and activations",
      ranks, ranks == 1 ? "rank" : "ranks", on_cpu ? "the CPU" : "GPUs", input.images.train->size(),
      input.images.validation->size(), input.images.num_classes, input.BatchesPerEpoch(), input.parts, input.batch_size,
      *loss, Megabytes(bytes));
}

}  // namespace

absl::StatusOr<PassMeters> Validate(RunState& state, comm::ProcessGroup* group) {
  Input& input = *state.input;
  data::Loader& loader = *input.validation;
  LOCKSTEP_RETURN_IF_ERROR(state.learner->BeginEvaluation());
  PassMeters meters(input.parts);  // starts the time
  StepReport report = {.pass = "Test: ", .batches = input.ValidationBatches(), .shares = group->size()};
  if (state.reporter) state.reporter->BeginPass(report);
  absl::Duration waited;  // for the images of the shares before
  for (int64_t virtual_rank = input.first(); virtual_rank < input.last(); ++virtual_rank) {
    LOCKSTEP_RETURN_IF_ERROR(input.StartValidation(virtual_rank));
    while (true) {
      LOCKSTEP_RETURN_IF_ERROR(group->failure());
      LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Example> batch, loader.Next());
      if (!batch) break;
      LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, state.learner->Evaluate(*batch));
      meters.Count(virtual_rank, result);
      meters.Update(result, waited + loader.waited());
      ++report.batch;
      if (state.reporter) state.reporter->Show(report, meters);
    }
    waited += loader.waited();
    state.PrintSkipped(loader);
  }
  const at::Tensor sums = meters.TakeSums();
  LOCKSTEP_RETURN_IF_ERROR(group->AllReduce(sums));
  meters.Show(sums);
  const int64_t found = meters.loss.count(), expected = input.images.validation->size();
  if (state.config.max_skipped > 0 || found == expected) return meters;
  return absl::InternalError(absl::StrCat("validated ", found, " images, there are ", expected));
}

absl::Status DryRun(RunState& state, comm::ProcessGroup* group) {
  Input& input = *state.input;
  if (state.reporter) state.reporter->Begin("=> dry run: the first batches ...");
  const auto training = First(input.train->Start(/*epoch=*/0), *input.train, "training");
  const auto validation = First(input.StartValidation(input.first()), *input.validation, "validation");
  // The ranks agree on these outcomes, since training on the batches is collective.
  const absl::Status& read = training.ok() ? validation.status() : training.status();
  LOCKSTEP_RETURN_IF_ERROR(comm::Agree(group, "the dry run's images", read));
  const absl::StatusOr<std::string> summary = Try(state, group->size(), *training, *validation);
  LOCKSTEP_RETURN_IF_ERROR(comm::Agree(group, "the dry run", summary.status()));
  if (state.reporter) state.reporter->Say(*summary);
  return absl::OkStatus();
}

}  // namespace lockstep::examples::imagenet
