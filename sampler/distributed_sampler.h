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

namespace lockstep::sampler {

// Where a shuffled order comes from.
enum class Permutation {
  // torch.randperm with a CPU generator seeded with seed + epoch, bit by bit. reset() holds 8 bytes an index of the
  // dataset while it runs, and 8 bytes an index of this rank's part from then on.
  kTorch,
};

struct DistributedSamplerOptions {
  int64_t num_replicas = 1;  // How many ranks share the dataset: the world size.
  int64_t rank = 0;          // Which of them this is, in [0, num_replicas).
  bool shuffle = true;       // A new order every epoch; false: ascending.
  int64_t seed = 0;          // The same on every rank. May be negative, as in Python.
  bool drop_last = false;    // Leave out the tail that does not divide evenly; false: repeat from the start.
  Permutation permutation = Permutation::kTorch;
};

// A place inside an epoch, the same on every rank: what a checkpoint holds of a sampler.
struct SamplerState {
  int64_t size = 0;
  int64_t num_replicas = 0;
  int64_t seed = 0;
  int64_t epoch = 0;
  int64_t consumed = 0;  // Indices of each rank's epoch that training has used.
  bool shuffle = false;
  bool drop_last = false;
};

// A torch::data sampler that deals a dataset's indices out to `num_replicas` ranks: rank r gets positions r, r +
// num_replicas, ... of one order that all ranks agree on without talking. Every rank gets equally many: ceil(size /
// num_replicas) with the order repeated from its start as often as that needs, or floor(size / num_replicas) with
// drop_last, which is none at all where size < num_replicas. Sizes and orders equal those of
// torch.utils.data.distributed.DistributedSampler of PyTorch 2.11.
//
//   absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(60000, {.num_replicas = 2, .rank = rank});
//   auto loader = torch::data::make_data_loader(dataset, *sampler, 64);
//   for (int64_t epoch = 0; epoch < 10; ++epoch) {
//     sampler->set_epoch(epoch);
//     for (auto& batch : *loader) Train(batch);
//   }
//
// Copies share the epoch and the restored position, so set_epoch() and Restore() reach the copy that a DataLoader has
// taken. How far next() has come is each copy's own.
//
// Thread safety: set_epoch(), epoch(), State(), Indices() and the sizes may be called while another thread uses another
// copy, such as the one in a DataLoader. One copy's reset(), next(), Restore(), save() and load() are for one thread at
// a time.
//
// Inside LibTorch's interfaces there is no status to return, so the members that say so throw what LibTorch throws for
// a bad value: c10::ValueError. Where memory runs out, Indices(), reset() and next() throw what LibTorch or the C++
// library throws.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  // A sampler at the start of epoch 0. InvalidArgument where size is not in [1, 2^62], num_replicas is not positive, or
  // rank is not in [0, num_replicas). Allocates nothing that grows with size.
  static absl::StatusOr<DistributedSampler> Create(int64_t size, DistributedSamplerOptions options);

  // The epoch that the next reset() of any copy takes, that is, the next begin() of a DataLoader. A batch that has been
  // prefetched keeps its epoch. Another epoch than the one before also forgets a position that was restored and not yet
  // used. Throws c10::ValueError where epoch is negative.
  void set_epoch(int64_t epoch);
  int64_t epoch() const;

  // This rank's indices per epoch.
  int64_t num_samples() const;
  // All ranks' indices per epoch: num_samples() * num_replicas.
  int64_t total_size() const;

  // This rank's whole order for epoch(), from its start.
  std::vector<int64_t> Indices() const;

  // The place after `consumed` of this rank's indices of epoch(), counted from the epoch's start even where training
  // was restored inside it. The caller counts, because a DataLoader with workers has taken more from its copy than
  // training has used. Throws c10::ValueError where consumed is not between 0 and num_samples().
  SamplerState State(int64_t consumed) const;

  // Goes to `state`: the next reset() of any copy, and the next next() of this one, goes on there, once; the reset
  // after that starts a whole epoch. InvalidArgument, and nothing is changed, where size, num_replicas, seed, shuffle
  // or drop_last are not this sampler's, epoch is negative, or consumed is not between 0 and num_samples().
  absl::Status Restore(const SamplerState& state);

  // Starts epoch(), where Restore() left off if it was called since the last reset of any copy. `new_size` is for a
  // dataset that has grown or shrunk: from here on this copy, and no other, deals out that many indices. A position
  // that was restored for another size is ignored. Throws c10::ValueError where new_size is not in [1, 2^62].
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices of this rank, fewer at the end of the epoch, then nullopt until reset(). A copy that
  // was never reset does that first. Throws c10::ValueError where batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // Writes the State() after what next() has given out, and goes there as Restore() does. load() throws c10::ValueError
  // where Restore() returns an error, and c10::Error where the archive lacks a field.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct Shared;

  DistributedSampler(int64_t size, const DistributedSamplerOptions& options);

  int64_t SequentialIndex(int64_t i) const;
  std::vector<int64_t> ShuffledIndices(int64_t epoch) const;
  SamplerState StateAt(int64_t epoch, int64_t consumed) const;

  int64_t size_;
  DistributedSamplerOptions options_;
  std::shared_ptr<Shared> shared_;

  bool started_ = false;        // The members below hold an epoch.
  int64_t started_epoch_ = 0;   // Which.
  int64_t position_ = 0;        // How many indices of it next() has given out or skipped.
  std::vector<int64_t> order_;  // This rank's whole order; empty without shuffle, which needs none.
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_DISTRIBUTED_SAMPLER_H_
