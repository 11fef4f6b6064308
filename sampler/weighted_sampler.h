// Indices drawn by weight, dealt out to ranks.

#ifndef LOCKSTEP_SAMPLER_WEIGHTED_SAMPLER_H_
#define LOCKSTEP_SAMPLER_WEIGHTED_SAMPLER_H_

#include <ATen/core/Tensor.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::sampler {

struct WeightedSamplerOptions {
  int64_t num_replicas = 1;  // How many ranks share the indices drawn: the world size.
  int64_t rank = 0;          // Which of them this is, in [0, num_replicas).
  bool replacement = true;   // An index may be drawn several times an epoch.
  int64_t seed = 0;          // The same on every rank. May be negative, as in Python.
};

// A torch::data sampler that draws `num_samples` indices an epoch, index i with probability weights[i] / sum of
// weights, and deals them out to `num_replicas` ranks as DistributedSampler does: rank r gets those at places r, r +
// num_replicas, ..., and every rank equally many, by repeating from the start. What is drawn is what
// torch.utils.data.WeightedRandomSampler of PyTorch 2.11 draws with torch.Generator().manual_seed(seed + epoch).
//
//   absl::StatusOr<WeightedSampler> sampler =
//       WeightedSampler::Create(weights, 60000, {.num_replicas = 2, .rank = rank});
//   auto loader = torch::data::make_data_loader(dataset, *sampler, 64);
//   for (int64_t epoch = 0; epoch < 10; ++epoch) {
//     sampler->set_epoch(epoch);
//     for (auto& batch : *loader) Train(batch);
//   }
//
// Every rank draws all ranks' indices in reset(), and holds them: 8 bytes each, besides 8 bytes a weight, which copies
// share.
//
// Copies share the epoch and the restored place, so set_epoch() and Restore() reach the copy that a DataLoader has
// taken. Thread safety is DistributedSampler's: set_epoch(), epoch(), State() and the sizes may be called while another
// thread uses another copy.
//
// Inside LibTorch's interfaces there is no status to return, so the members that say so throw c10::ValueError. Where
// memory runs out, reset() and next() throw what LibTorch throws; after that, Restore() once more to go on.
class WeightedSampler : public torch::data::samplers::Sampler<> {
 public:
  // A sampler at the start of epoch 0, which has drawn nothing. InvalidArgument where
  //  - there are no weights, or more than 2^24, which is torch.multinomial's limit;
  //  - a weight is negative, infinite or not a number, or all are zero, or their sum is infinite (PyTorch then draws
  //    wrongly and says nothing);
  //  - num_samples is not in [1, 2^62], or without replacement is more than there are weights above zero (PyTorch
  //    then draws the indices of weight zero last);
  //  - num_replicas is not positive, or rank is not in [0, num_replicas).
  static absl::StatusOr<WeightedSampler> Create(const std::vector<double>& weights, int64_t num_samples,
                                                WeightedSamplerOptions options);

  // As in DistributedSampler, of which `size` is the num_samples that Create() was given. A state knows neither the
  // weights nor whether they are drawn with replacement: restore it into a sampler that has the same.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return places_.epoch(); }
  int64_t num_samples() const { return places_.num_samples(); }
  int64_t total_size() const { return places_.total_size(); }
  int64_t num_remaining() const { return places_.num_remaining(); }
  SamplerState State(int64_t consumed) const { return places_.State(consumed); }
  absl::Status Restore(const SamplerState& state);

  // Draws epoch()'s indices and starts them, where Restore() left off if it was called since the last reset of any
  // copy. Weights are for one size of the dataset: throws c10::ValueError where new_size is another.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices of this rank, fewer at the end of the epoch, then nullopt until reset(). A copy that
  // was never reset does that first. Throws c10::ValueError where batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // As in DistributedSampler.
  void save(torch::serialize::OutputArchive& archive) const override { places_.save(archive); }
  void load(torch::serialize::InputArchive& archive) override;

 private:
  WeightedSampler(const std::vector<double>& weights, int64_t num_drawn, const WeightedSamplerOptions& options,
                  DistributedSampler places);

  at::Tensor weights_;
  int64_t num_drawn_;  // An epoch, for all ranks.
  WeightedSamplerOptions options_;
  DistributedSampler places_;                    // Deals out places in drawn_; holds the epoch.
  std::shared_ptr<absl::Mutex> epoch_is_fixed_;  // All copies': keeps the epoch while one of them resets.
  at::Tensor drawn_;                             // Undefined until reset().
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_WEIGHTED_SAMPLER_H_
