#include "lockstep/data/step_loader.h"

#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::data {

absl::StatusOr<std::unique_ptr<StepLoader>> StepLoader::Create(const Dataset* dataset, int64_t rank, int64_t ranks,
                                                               const StepLoaderOptions& options) {
  const int64_t examples = options.examples < 0 ? dataset->size() : options.examples;
  if (examples < 1 || examples > dataset->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("StepLoader: expected 1 to ", dataset->size(), " examples, the dataset's, found ", examples));
  }
  if (options.virtual_ranks < 1 || options.batch_size < 1 || options.batch_size % options.virtual_ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("StepLoader: batch_size: expected a multiple of the ",
                                                   options.virtual_ranks, " virtual ranks, found ",
                                                   options.batch_size));
  }
  sampler::DistributedSamplerOptions sampled;
  sampled.num_replicas = options.virtual_ranks;
  sampled.shuffle = options.shuffle;
  sampled.seed = options.seed;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::VirtualRankSampler::Create(examples, rank, ranks, sampled,
                                                                              /*batches_in_turn=*/1, options.order));
  const int64_t epoch_steps = (examples - 1) / options.batch_size + 1;
  auto made = absl::WrapUnique(new StepLoader(options, epoch_steps, std::move(sampler)));
  LoaderOptions loaded;
  loaded.batch_size = options.batch_size / options.virtual_ranks;
  loaded.num_workers = options.num_workers;
  loaded.seed = options.seed;
  LOCKSTEP_ASSIGN_OR_RETURN(made->loader_, Loader::Create(dataset, &made->sampler_, loaded));
  return made;
}

Example StepLoader::Next(int64_t step) {
  absl::StatusOr<Example> batch = NextOf(step);
  ThrowIfError(batch.status());
  return *std::move(batch);
}

absl::StatusOr<Example> StepLoader::NextOf(int64_t step) {
  const bool ended = batches_ == sampler_.num_virtual_ranks();  // the last step's
  if (step_ >= 0 && step != step_ + (ended ? 1 : 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat("StepLoader: expected step ", step_ + (ended ? 1 : 0), ", found ", step));
  }
  if (step_ < 0 || (ended && step % epoch_steps_ == 0)) LOCKSTEP_RETURN_IF_ERROR(Start(step));
  batches_ = ended ? 1 : batches_ + 1;
  step_ = step;
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<Example> batch, loader_->Next());
  if (!batch) return absl::InternalError(absl::StrCat("StepLoader: step ", step, " has no batch"));
  return *std::move(batch);
}

absl::Status StepLoader::Start(int64_t step) {
  const int64_t epoch = step / epoch_steps_;
  sampler_.set_epoch(epoch);
  sampler::SamplerState place = sampler_.State(0);
  place.consumed = step % epoch_steps_ * options_.batch_size;
  LOCKSTEP_RETURN_IF_ERROR(sampler_.Restore(place));
  return loader_->Start(epoch);
}

}  // namespace lockstep::data
