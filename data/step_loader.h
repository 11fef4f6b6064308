// A rank's batches by the number of the step, for training that may begin at any step on any number of ranks.

#ifndef LOCKSTEP_DATA_STEP_LOADER_H_
#define LOCKSTEP_DATA_STEP_LOADER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"
#include "lockstep/data/loader.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

namespace lockstep::data {

struct StepLoaderOptions {
  int64_t batch_size = 1;     // examples of a step, over all ranks: a multiple of virtual_ranks
  int64_t virtual_ranks = 1;  // or, without virtual ranks, the number of ranks
  // The division of virtual ranks among the ranks: the wrapper's.
  sampler::VirtualRankOrder order = sampler::VirtualRankOrder::kBlocks;
  bool shuffle = true;
  int64_t seed = 0;       // of the order of examples, and of the loader's augmentation
  int64_t examples = -1;  // only the first so many of the dataset; -1: all
  int num_workers = 1;
};

// In each step each virtual rank has one batch. Its examples depend on the dataset, the options, the step and the
// virtual rank alone. So the number of the step is all that a checkpoint needs to go on, on any number of ranks:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto batches, data::StepLoader::Create(&dataset, rank, ranks, options));
//   while (step < kSteps) {
//     for (const int virtual_rank : ddp.VirtualRanks(step)) {
//       const data::Example batch = batches->Next(step);   // virtual_rank's
//       loss(ddp(batch.data), batch.target).backward();
//     }
//     ...
//   }
//
// An epoch has epoch_steps() steps, and its last batches may be short. Epochs differ in their order.
//
// Thread safety: as of Loader.
class StepLoader {
 public:
  // `dataset` is borrowed. For rank number `rank` of `ranks`. InvalidArgument: batch_size is not a multiple of
  // virtual_ranks, `examples` is not one of the dataset's numbers of examples, or an error of VirtualRankSampler or Loader.
  static absl::StatusOr<std::unique_ptr<StepLoader>> Create(const Dataset* dataset, int64_t rank, int64_t ranks,
                                                            const StepLoaderOptions& options);

  // The batch of the rank's next virtual rank, in the order of VirtualRanks(): data [n, ...] and target [n, ...], with n
  // at most batch_size / virtual_ranks. Begins anywhere; then `step` grows by one after all virtual ranks of this rank.
  // Blocks until the batch is ready. Throws StatusError with the loader's error, and FailedPrecondition: `step` is not
  // the expected one.
  Example Next(int64_t step);

  int64_t epoch_steps() const { return epoch_steps_; }

 private:
  StepLoader(const StepLoaderOptions& options, int64_t epoch_steps, sampler::VirtualRankSampler sampler)
      : options_(options), epoch_steps_(epoch_steps), sampler_(std::move(sampler)) {}
  absl::StatusOr<Example> NextOf(int64_t step);
  absl::Status Start(int64_t step);

  const StepLoaderOptions options_;
  const int64_t epoch_steps_;
  sampler::VirtualRankSampler sampler_;
  std::unique_ptr<Loader> loader_;
  int64_t step_ = -1;    // of the last batch
  int64_t batches_ = 0;  // of that step
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_STEP_LOADER_H_
