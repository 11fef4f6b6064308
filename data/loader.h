// Batches of a dataset, made ahead by threads.

#ifndef LOCKSTEP_DATA_LOADER_H_
#define LOCKSTEP_DATA_LOADER_H_

#include <c10/core/Device.h>
#include <torch/data/example.h>
#include <torch/data/samplers/base.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

struct LoaderOptions {
  int64_t batch_size = 1;
  bool drop_last = false;  // Leave out the last batch where it is short.
  int num_workers = 2;     // Threads that make examples, at least 1. All work on the next batch first.
  // Batches that are made, or being made, beyond the one that Next() gave last, at least 1. There is memory for two
  // more, whatever num_workers is: that one, and the one that takes its place in the caller's hands.
  int64_t prefetch = 2;
  int64_t seed = 0;  // Of augmentation. The same on every rank: an example's augmentation then follows its index.
  // How many examples of an epoch may fail. One that fails is left out of its batch, which is smaller by it; one more
  // than this ends the epoch. 0: the first that fails does.
  int64_t max_skipped = 0;
  bool pin_memory = false;  // Batches in page-locked memory, from where copies to a GPU are asynchronous.
  // Where batches are given. For a GPU they are made in page-locked memory and copied by Next() on a stream of the
  // loader's, for which the stream that is current in Next() waits: neither the thread does, nor the copy for what is
  // queued there already.
  c10::Device device = c10::kCPU;
};

// Goes through a dataset in a sampler's order, batch by batch:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto loader, Loader::Create(&dataset, &sampler, {.batch_size = 64, .num_workers = 8}));
//   for (int64_t epoch = 0; epoch < 90; ++epoch) {
//     sampler.set_epoch(epoch);
//     LOCKSTEP_RETURN_IF_ERROR(loader->Start(epoch));
//     while (true) {
//       LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<torch::data::Example<>> batch, loader->Next());
//       if (!batch) break;
//       Train(batch->data, batch->target);
//       if (time_to_save) Save(sampler.State(loader->consumed()));
//     }
//   }
//
// Batches, their order and each example's augmentation depend on the dataset, the sampler, `seed` and the epoch alone:
// not on the number of threads nor on when they run. So to go on in mid-epoch restore the sampler's state and Start()
// its epoch; what comes is what would have come.
//
// Threads: Start(), Next() and the rest are for one thread at a time. The destructor waits for the examples that are
// being made.
class Loader {
 public:
  // An example that was left out.
  struct Skipped {
    int64_t index = 0;
    absl::Status error;
  };

  // `dataset` and `sampler` are borrowed: both outlive the loader, and only the loader calls sampler's reset() and
  // next(). Starts the threads. InvalidArgument: an option is out of its range, or pin_memory or
  // device without a GPU.
  static absl::StatusOr<std::unique_ptr<Loader>> Create(const Dataset* dataset,
                                                        torch::data::samplers::Sampler<>* sampler,
                                                        const LoaderOptions& options);
  ~Loader();

  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Starts a pass: resets the sampler, and has the first batches made. `epoch` is that of augmentation; the sampler's
  // own is set before. What another pass has left to give is dropped. What the sampler throws becomes a status.
  absl::Status Start(int64_t epoch);

  // The next batch: its examples stacked, data [n, ...] and target [n, ...], n <= batch_size; nullopt at the end of the
  // pass. The tensors are the caller's. Blocks until it is made.
  //
  // FailedPrecondition: there was no Start(), or none after an error. InvalidArgument: an example's shape or dtype is
  // not that of the others. Else what an example met; where max_skipped is spent the message says so. An error ends the
  // pass.
  absl::StatusOr<std::optional<torch::data::Example<>>> Next();

  // Indices of this pass that are in the batches given so far, with those skipped: what a sampler's State() takes.
  int64_t consumed() const;
  // Of those, the ones that were skipped.
  const std::vector<Skipped>& skipped() const;
  // How long Next() has waited for batches in this pass: 0 where the threads keep ahead of training.
  absl::Duration waited() const;

 private:
  class Impl;
  explicit Loader(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_LOADER_H_
