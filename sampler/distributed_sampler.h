// Divides a dataset's indices among ranks, in the exact order of Python PyTorch's DistributedSampler.

#ifndef LOCKSTEP_SAMPLER_DISTRIBUTED_SAMPLER_H_
#define LOCKSTEP_SAMPLER_DISTRIBUTED_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/sampler/index_iterator.h"
#include "lockstep/sampler/internal/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::sampler {
class VirtualRankSampler;
namespace internal {
struct Archive;
}

struct DistributedSamplerOptions {
  int64_t num_replicas = 1;  // The number of ranks that share the dataset (the world size).
  int64_t rank = 0;          // This rank, in [0, num_replicas).
  bool shuffle = true;       // True: a new order every epoch. False: ascending.
  int64_t seed = 0;          // Equal on every rank. May be negative, as in Python.
  bool drop_last = false;    // True: drops the tail that does not divide evenly. False: repeats from the start.
  Permutation permutation = Permutation::kTorch;
};

// Divides a dataset's indices among `num_replicas` ranks. All ranks compute the same order without communication, and
// rank r gets its places r, r + num_replicas, ... Every rank gets the same number of indices: ceil(size /
// num_replicas), for which the order is repeated from its start as often as needed. With drop_last it is floor(size /
// num_replicas), which is 0 if size < num_replicas. Sizes and, with Permutation::kTorch, orders are the same as from
// torch.utils.data.distributed.DistributedSampler of PyTorch 2.11.
//
//   absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(60000, {.num_replicas = 2, .rank = rank});
//   auto loader = torch::data::make_data_loader(dataset, TorchSampler(*sampler), 64);  // torch_sampler.h
//   for (int64_t epoch = 0; epoch < 10; ++epoch) {
//     sampler->set_epoch(epoch);
//     for (auto& batch : *loader) Train(batch);
//   }
//
// data::Loader takes `&*sampler` itself. Without a loader, next() returns batches of indices, and an iterator returns
// single indices:
//
//   for (const int64_t index : *sampler) Use(index);
//
// To resume in the middle of an epoch, on the same or another number of ranks, count the indices that training has
// used:
//
//   if (resuming) LOCKSTEP_RETURN_IF_ERROR(sampler->Restore(state));  // then set_epoch(state.epoch), as ever
//   int64_t consumed = 0;
//   for (auto& batch : *loader) {
//     Train(batch);
//     consumed += batch.data.size(0);
//     if (time_to_save) Save(sampler->State(consumed));
//   }
//
// The order of the epoch does not change. The present ranks divide its unused places, so each of them is visited once.
// If they do not divide evenly, some places from the start of the order repeat (with drop_last, some at its end are
// dropped).
//
// Copies share the epoch and the restored place, so set_epoch() and Restore() reach the copy inside a DataLoader. Each
// copy has a separate position for next().
//
// Thread safety: set_epoch(), epoch(), State(), Indices() and the sizes may be called while another thread uses another
// copy, such as the one in a DataLoader. For one copy, only one thread at a time may call reset(), next(), begin() and
// Restore().
//
// Sampler's interface cannot return a status, so the members that say so throw c10::ValueError, as LibTorch does for a
// bad value. If memory runs out, Indices(), reset() and next() throw std::bad_alloc, or std::length_error if no vector
// can be that long.
class DistributedSampler : public Sampler {
 public:
  // Returns a sampler at the start of epoch 0. InvalidArgument: size is not in [0, 2^62], num_replicas is not positive,
  // or rank is not in [0, num_replicas). The memory allocated does not grow with size.
  static absl::StatusOr<DistributedSampler> Create(int64_t size, DistributedSamplerOptions options);

  // Sets the epoch for the next reset() of any copy, and so for the next begin() of a DataLoader. A batch that is
  // already prefetched keeps its epoch. If the epoch changes, a restored place is forgotten. Throws c10::ValueError if
  // epoch is negative.
  void set_epoch(int64_t epoch);
  int64_t epoch() const;

  // The number of indices of this rank in an epoch.
  int64_t num_samples() const;
  // The number of indices of all ranks in an epoch: num_samples() * num_replicas.
  int64_t total_size() const;
  // The number of indices of this rank from the restored place to the end of its epoch: the total that the current pass
  // over epoch() returns, or the next one if none is under way. num_samples() if no place was restored.
  int64_t num_remaining() const;

  // This rank's whole order for epoch(), as if these ranks had begun it. Ignores a restored place.
  std::vector<int64_t> Indices() const;

  // The place after `consumed` indices of this rank, counted from the start of this pass over epoch(), which is the
  // last reset() of any copy. 0 is therefore the restored place. The caller counts, because a DataLoader with workers
  // takes more indices from its copy than training has used. Throws c10::ValueError if `consumed` is not between 0 and
  // num_remaining().
  SamplerState State(int64_t consumed) const;

  // Continues from `state`: the next reset() of any copy, or the next next() of this copy, starts there. The reset
  // after that starts a whole epoch. The number of ranks may differ. InvalidArgument, and nothing changes: size, seed,
  // shuffle, drop_last or permutation differ from this sampler's, num_replicas is not positive, epoch is negative, or
  // consumed is not between 0 and size.
  absl::Status Restore(const SamplerState& state);

  // Starts epoch(), or continues from the restored place if Restore() was called since the last reset of any copy. If
  // the dataset has grown or shrunk, `new_size` sets the number of indices for this copy only, from now on; a place
  // restored for another size is then ignored. Throws c10::ValueError if new_size is not in [0, 2^62].
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices of this rank, fewer at the end of the epoch, then nullopt until reset(). A copy that
  // was never reset resets first. Throws c10::ValueError if batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // Calls reset() and then iterates over this rank's indices. They come from next(), so one copy supports one iteration
  // at a time.
  IndexIterator begin();
  IndexIterator end() { return IndexIterator(); }

 private:
  friend struct internal::Archive;  // TorchSampler's save() and load()
  friend class VirtualRankSampler;  // several ranks of one order
  struct Shared;
  // A pass over an epoch, or over the rest of one.
  struct Pass {
    int64_t epoch = 0;
    int64_t start = 0;  // the first place of the epoch's order in this pass
  };

  DistributedSampler(int64_t size, const DistributedSamplerOptions& options);

  Pass CurrentPass() const;
  int64_t NumSamplesFrom(int64_t start) const;
  internal::Order OrderOf(int64_t epoch) const;
  // Writes `count` of a rank's indices in the pass, from number `first` on.
  void Fill(const Pass& pass, int64_t rank, int64_t first, int64_t count, internal::Order& order,
            int64_t* indices) const;
  // Returns them, in the pass that next() is in.
  std::vector<size_t> Batch(int64_t rank, int64_t first, int64_t count);
  SamplerState StateAt(const Pass& pass, int64_t consumed) const;

  int64_t size_;
  DistributedSamplerOptions options_;
  std::shared_ptr<Shared> shared_;

  bool started_ = false;  // the members below describe a pass
  Pass pass_;
  int64_t position_ = 0;                  // indices of the pass that next() has returned
  std::optional<internal::Order> order_;  // until the end of the pass
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_DISTRIBUTED_SAMPLER_H_
