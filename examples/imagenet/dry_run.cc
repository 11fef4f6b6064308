#include "lockstep/examples/imagenet/dry_run.h"

#include <fstream>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/examples/program/peak_memory.h"

namespace lockstep::examples::imagenet {
namespace {

using Batch = data::Example;

// Returns the first batch of a loader whose pass has started.
absl::StatusOr<Batch> First(data::Loader& loader, absl::string_view which) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Batch> batch, loader.Next());
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

absl::Status CheckMemory(int64_t bytes, int local_ranks, c10::Device device) {
  const int64_t available = AvailableMemory();
  if (!device.is_cpu() || bytes * local_ranks <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("a rank needs ", Megabytes(bytes), " and there are ", local_ranks,
                                                   " here, but ", Megabytes(available), " of memory are left"));
}

struct Batches {
  Batch training, validation;
};

absl::StatusOr<Batches> Read(Input& input) {
  Batches batches;
  LOCKSTEP_RETURN_IF_ERROR(input.train().Start(/*epoch=*/0));
  LOCKSTEP_ASSIGN_OR_RETURN(batches.training, First(input.train(), "training"));
  LOCKSTEP_RETURN_IF_ERROR(input.StartValidation(input.first()));
  LOCKSTEP_ASSIGN_OR_RETURN(batches.validation, First(input.validation(), "validation"));
  return batches;
}

absl::StatusOr<std::string> Measure(const Batches& batches, const Input& input, Learner& learner, int ranks,
                                    int local_ranks) {
  const PeakMemory peak;
  std::optional<double> loss;
  LOCKSTEP_RETURN_IF_ERROR(learner.ForEachVirtualRank(/*step=*/0, [&](int) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, learner.Train(batches.training, /*parts=*/1, /*last=*/true));
    if (!loss) loss = result.loss;
    return absl::OkStatus();
  }));
  const int64_t bytes = learner.StateBytes() + peak.bytes();
  LOCKSTEP_RETURN_IF_ERROR(learner.Evaluate(batches.validation).status());
  LOCKSTEP_RETURN_IF_ERROR(CheckMemory(bytes, local_ranks, learner.device()));
  return absl::StrFormat(
      "dry run: %d %s on %s, %d training and %d validation images of %d classes, %d batches of %d x %d an epoch; "
      "loss of the first batch %.4f; a rank needs %s for weights, gradients and activations",
      ranks, ranks == 1 ? "rank" : "ranks", learner.device().is_cpu() ? "the CPU" : "GPUs", input.train_images(),
      input.validation_images(), input.num_classes(), input.BatchesPerEpoch(), input.parts(), input.batch_size(), *loss,
      Megabytes(bytes));
}

}  // namespace

absl::StatusOr<std::string> DryRun(Input& input, Learner& learner, comm::ProcessGroup* group, int local_ranks) {
  // The ranks agree on this outcome, since training on the batches is collective.
  const absl::StatusOr<Batches> batches = Read(input);
  LOCKSTEP_RETURN_IF_ERROR(comm::Agree(group, "the dry run's images", batches.status()));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> summaries,
      comm::GatherAgreed(group, "the dry run", Measure(*batches, input, learner, group->size(), local_ranks)));
  return summaries[0];
}

}  // namespace lockstep::examples::imagenet
