// Draws indices by weight and divides them among ranks.

#ifndef LOCKSTEP_SAMPLER_WEIGHTED_SAMPLER_H_
#define LOCKSTEP_SAMPLER_WEIGHTED_SAMPLER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::sampler {
namespace internal {
struct Archive;
}

struct WeightedSamplerOptions {
  int64_t num_replicas = 1;  // The number of ranks that share the drawn indices (the world size).
  int64_t rank = 0;          // This rank, in [0, num_replicas).
  bool replacement = true;   // True if an index may be drawn several times in an epoch.
  int64_t seed = 0;          // Equal on every rank. May be negative, as in Python.
};

// Draws `num_samples` indices in each epoch. Index i has the probability weights[i] / sum of weights. The drawn indices
// are divided among `num_replicas` ranks as by DistributedSampler: rank r gets places r, r + num_replicas, ..., and the
// order is repeated from its start so that every rank gets equally many. The draws are the same as from
// torch.utils.data.WeightedRandomSampler of PyTorch 2.11 with torch.Generator().manual_seed(seed + epoch). Python
// refuses more than 2^24 weights; here memory is the only limit.
//
//   absl::StatusOr<WeightedSampler> sampler =
//       WeightedSampler::Create(weights, 60000, {.num_replicas = 2, .rank = rank});
//   auto loader = torch::data::make_data_loader(dataset, TorchSampler(*sampler), 64);  // torch_sampler.h
//   for (int64_t epoch = 0; epoch < 10; ++epoch) {
//     sampler->set_epoch(epoch);
//     for (auto& batch : *loader) Train(batch);
//   }
//
// In reset() every rank draws and keeps the indices of all ranks: 8 bytes each. Copies share the weights: 8 bytes each.
// While reset() draws, it takes the same memory once more, without replacement twice.
//
// Copies share the epoch and the restored place, so set_epoch() and Restore() reach the copy inside a DataLoader.
// Thread safety is that of DistributedSampler: set_epoch(), epoch(), State() and the sizes may be called while another
// thread uses another copy.
//
// Sampler's interface cannot return a status, so the members that say so throw c10::ValueError. If memory runs out,
// reset() and next() throw LibTorch's exception. To continue after that, call Restore() again.
class WeightedSampler : public Sampler {
 public:
  // Returns a sampler at the start of epoch 0. Draws nothing. InvalidArgument:
  // - `weights` is empty;
  // - a weight is negative, infinite or NaN, all weights are zero, or their sum is infinite (PyTorch draws wrong
  //   indices then, without an error);
  // - num_samples is not in [1, 2^62], or without replacement exceeds the number of weights above zero (PyTorch draws
  //   the indices of weight zero last);
  // - num_replicas is not positive, or rank is not in [0, num_replicas).
  static absl::StatusOr<WeightedSampler> Create(const std::vector<double>& weights, int64_t num_samples,
                                                WeightedSamplerOptions options);

  // As in DistributedSampler, with `size` = the num_samples of Create(). A state does not contain the weights or
  // `replacement`: restore it into a sampler with the same ones.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return places_.epoch(); }
  int64_t num_samples() const { return places_.num_samples(); }
  int64_t total_size() const { return places_.total_size(); }
  int64_t num_remaining() const { return places_.num_remaining(); }
  SamplerState State(int64_t consumed) const { return places_.State(consumed); }
  absl::Status Restore(const SamplerState& state);

  // Draws epoch()'s indices and starts the epoch, or continues from the restored place if Restore() was called since
  // the last reset of any copy. Throws c10::ValueError if new_size differs from the number of weights.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices of this rank, fewer at the end of the epoch, then nullopt until reset(). A copy that
  // was never reset resets first. Throws c10::ValueError if batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

 private:
  friend struct internal::Archive;  // TorchSampler's save() and load()

  WeightedSampler(const std::vector<double>& weights, int64_t num_drawn, const WeightedSamplerOptions& options,
                  DistributedSampler places);

  at::Tensor weights_;
  int64_t num_drawn_;  // in an epoch, for all ranks
  WeightedSamplerOptions options_;
  DistributedSampler places_;                    // divides the places of drawn_; holds the epoch
  std::shared_ptr<absl::Mutex> epoch_is_fixed_;  // shared by all copies: fixes the epoch while a copy resets
  at::Tensor drawn_;                             // undefined until reset()
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_WEIGHTED_SAMPLER_H_
