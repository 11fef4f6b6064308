// Each rank's share of a dataset's indices, in exactly the order that Python PyTorch's DistributedSampler gives them.

#ifndef LOCKSTEP_SAMPLER_DISTRIBUTED_SAMPLER_H_
#define LOCKSTEP_SAMPLER_DISTRIBUTED_SAMPLER_H_

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/sampler/index_iterator.h"
#include "lockstep/sampler/internal/order.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::sampler {

struct DistributedSamplerOptions {
  int64_t num_replicas = 1;  // How many ranks share the dataset: the world size.
  int64_t rank = 0;          // Which of them this is, in [0, num_replicas).
  bool shuffle = true;       // A new order every epoch; false: ascending.
  int64_t seed = 0;          // The same on every rank. May be negative, as in Python.
  bool drop_last = false;    // Leave out the tail that does not divide evenly; false: repeat from the start.
  Permutation permutation = Permutation::kTorch;
};

// A torch::data sampler that deals a dataset's indices out to `num_replicas` ranks: rank r gets places r, r +
// num_replicas, ... of one order that all ranks agree on without talking. Every rank gets equally many: ceil(size /
// num_replicas) with the order repeated from its start as often as that needs, or floor(size / num_replicas) with
// drop_last, which is none at all where size < num_replicas. Sizes and, with Permutation::kTorch, orders equal those of
// torch.utils.data.distributed.DistributedSampler of PyTorch 2.11.
//
//   absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(60000, {.num_replicas = 2, .rank = rank});
//   auto loader = torch::data::make_data_loader(dataset, *sampler, 64);
//   for (int64_t epoch = 0; epoch < 10; ++epoch) {
//     sampler->set_epoch(epoch);
//     for (auto& batch : *loader) Train(batch);
//   }
//
// By itself it gives batches of indices by reset() and next(), or indices one by one:
//
//   for (const int64_t index : *sampler) Use(index);
//
// To go on in the middle of an epoch, on as many ranks as before or on others, count what training has used:
//
//   if (resuming) LOCKSTEP_RETURN_IF_ERROR(sampler->Restore(state));  // then set_epoch(state.epoch), as ever
//   int64_t consumed = 0;
//   for (auto& batch : *loader) {
//     Train(batch);
//     consumed += batch.data.size(0);
//     if (time_to_save) Save(sampler->State(consumed));
//   }
//
// The epoch's order stays what it was; the ranks that there are now deal out the places of it that no rank has used, so
// that each of those is visited once, and only where they do not divide evenly some of the order's start again (or with
// drop_last some of its end not).
//
// Copies share the epoch and the restored place, so set_epoch() and Restore() reach the copy that a DataLoader has
// taken. How far next() has come is each copy's own.
//
// Thread safety: set_epoch(), epoch(), State(), Indices() and the sizes may be called while another thread uses another
// copy, such as the one in a DataLoader. One copy's reset(), next(), begin(), Restore(), save() and load() are for one
// thread at a time.
//
// Inside LibTorch's interfaces there is no status to return, so the members that say so throw what LibTorch throws for
// a bad value: c10::ValueError. Where memory runs out, Indices(), reset() and next() throw std::bad_alloc, or where no
// vector can be as long std::length_error.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  // A sampler at the start of epoch 0. InvalidArgument where size is not in [1, 2^62], num_replicas is not positive, or
  // rank is not in [0, num_replicas). Allocates nothing that grows with size.
  static absl::StatusOr<DistributedSampler> Create(int64_t size, DistributedSamplerOptions options);

  // The epoch that the next reset() of any copy takes, that is, the next begin() of a DataLoader. A batch that has been
  // prefetched keeps its epoch. Another epoch than the one before also forgets a place that was restored. Throws
  // c10::ValueError where epoch is negative.
  void set_epoch(int64_t epoch);
  int64_t epoch() const;

  // This rank's indices per epoch.
  int64_t num_samples() const;
  // All ranks' indices per epoch: num_samples() * num_replicas.
  int64_t total_size() const;
  // This rank's indices from the place that was restored, if one was, to the end of its epoch: what the pass over
  // epoch() that is under way, or else the next one, gives out in all. num_samples() where none was restored.
  int64_t num_remaining() const;

  // This rank's whole order for epoch() if these ranks had begun it, whatever was restored.
  std::vector<int64_t> Indices() const;

  // The place after `consumed` of this rank's indices, counted from where this pass over epoch() began: from the last
  // reset() of any copy, so 0 is what was restored. The caller counts, because a DataLoader with workers has taken more
  // from its copy than training has used. Throws c10::ValueError where consumed is not between 0 and num_remaining().
  SamplerState State(int64_t consumed) const;

  // Goes to `state`: the next reset() of any copy, and the next next() of this one, goes on there, once; the reset
  // after that starts a whole epoch. The number of ranks may be another. InvalidArgument, and nothing is changed, where
  // size, seed, shuffle, drop_last or permutation are not this sampler's, num_replicas is not positive, epoch is
  // negative, or consumed is not between 0 and size.
  absl::Status Restore(const SamplerState& state);

  // Starts epoch(), where Restore() left off if it was called since the last reset of any copy. `new_size` is for a
  // dataset that has grown or shrunk: from here on this copy, and no other, deals out that many indices. A place
  // that was restored for another size is ignored. Throws c10::ValueError where new_size is not in [1, 2^62].
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices of this rank, fewer at the end of the epoch, then nullopt until reset(). A copy that
  // was never reset does that first. Throws c10::ValueError where batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // reset(), then this rank's indices one by one. They come out of next(), so there is one such iteration of a copy at
  // a time.
  IndexIterator begin();
  IndexIterator end() { return IndexIterator(); }

  // Writes the State() after what next() has given out, and goes there as Restore() does. load() throws c10::ValueError
  // where Restore() returns an error, and c10::Error where the archive lacks a field or it has another type.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct Shared;
  // A pass over an epoch, or over the rest of one.
  struct Pass {
    int64_t epoch = 0;
    int64_t start = 0;  // The first place of the epoch's order that it deals out.
  };

  DistributedSampler(int64_t size, const DistributedSamplerOptions& options);

  Pass CurrentPass() const;
  int64_t NumSamplesFrom(int64_t start) const;
  internal::Order OrderOf(int64_t epoch) const;
  // Number `first` and those after it of this rank's indices in the pass.
  void Fill(const Pass& pass, int64_t first, int64_t count, internal::Order& order, int64_t* indices) const;
  SamplerState StateAt(const Pass& pass, int64_t consumed) const;

  int64_t size_;
  DistributedSamplerOptions options_;
  std::shared_ptr<Shared> shared_;

  bool started_ = false;  // The members below hold a pass.
  Pass pass_;
  int64_t position_ = 0;                  // How many indices of it next() has given out.
  std::optional<internal::Order> order_;  // Until the pass is at its end.
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_DISTRIBUTED_SAMPLER_H_
