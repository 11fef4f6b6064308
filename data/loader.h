// Prepares batches of a dataset ahead of time, on several threads.

#ifndef LOCKSTEP_DATA_LOADER_H_
#define LOCKSTEP_DATA_LOADER_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep::data {

struct LoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;  // Drops the last batch if it is short.
  int num_workers = 2;     // Threads that create examples, at least 1. All of them work on the next batch first.
  // Batches that are ready or in preparation, besides the last result of Next(). At least 1. Memory is allocated for
  // two more, whatever num_workers is: the batch in the caller's hands and the next one to be returned.
  int64_t prefetch = 2;
  int64_t seed = 0;  // The augmentation's seed. If all ranks have the same, augmentation depends only on the index.
  // How many examples of an epoch may fail. A failed example is left out, so its batch is smaller. If more fail, the
  // epoch ends with an error. 0: the first failure ends it.
  int64_t max_skipped = 0;
  bool pin_memory = false;  // Batches are in page-locked memory, from which copies to a GPU are asynchronous.
  // The device of the batches. For a GPU, batches are prepared in page-locked memory, and Next() copies them on a
  // separate stream. The stream that is current in Next() waits for the copy. The calling thread does not wait, and the
  // copy does not wait for work already queued on the current stream.
  c10::Device device = c10::kCPU;
};

// Iterates over a dataset in a sampler's order, batch by batch:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto loader, Loader::Create(&dataset, &sampler, {.batch_size = 64, .num_workers = 8}));
//   for (int64_t epoch = 0; epoch < 90; ++epoch) {
//     sampler.set_epoch(epoch);
//     LOCKSTEP_RETURN_IF_ERROR(loader->Start(epoch));
//     while (true) {
//       LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Example> batch, loader->Next());
//       if (!batch) break;
//       Train(batch->data, batch->target);
//       if (time_to_save) Save(sampler.State(loader->consumed()));
//     }
//   }
//
// Batches, their order and each example's augmentation depend only on the dataset, the sampler, `seed` and the epoch,
// not on the number of threads or their timing. To resume in the middle of an epoch, restore the sampler's state and
// call Start() with its epoch: the remaining batches are the same as without the interruption.
//
// Thread safety: one thread at a time may call methods. The destructor waits for the examples in preparation.
class Loader {
 public:
  // An example that was left out because it failed.
  struct Skipped {
    int64_t index = 0;
    absl::Status error;
  };

  // `dataset` and `sampler` are borrowed and must outlive the loader. Only the loader may call the sampler's reset()
  // and next(). Starts the threads. InvalidArgument: an option is out of range, or pin_memory or a GPU as `device`
  // without a GPU.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(const Dataset* dataset, sampler::Sampler* sampler,
                                                        const LoaderOptions& options);
  ~Loader();

  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Starts a pass: resets the sampler and starts to prepare the first batches. `epoch` determines the augmentation. Set
  // the sampler's epoch before. The rest of a previous pass is dropped. An exception of the sampler becomes a status.
  absl::Status Start(int64_t epoch);

  // The next batch, with its examples stacked: data [n, ...] and target [n, ...], n <= batch_size. nullopt at the end
  // of the pass. The caller owns the tensors. Blocks until the batch is ready.
  //
  // FailedPrecondition: Start() was not called, or not since the last error. InvalidArgument: the shape or dtype of an
  // example differs from the others. Other errors come from an example; if max_skipped is exhausted, the message says
  // so. An error ends the pass.
  absl::StatusOr<std::optional<Example>> Next();

  // The number of indices of this pass in the batches returned so far, including skipped ones: the argument for a
  // sampler's State().
  int64_t consumed() const;
  // The skipped examples among them.
  const std::vector<Skipped>& skipped() const;
  // The total time that Next() has waited for batches in this pass: 0 if the threads are faster than training.
  absl::Duration waited() const;

 private:
  class Impl;
  explicit Loader(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_LOADER_H_
