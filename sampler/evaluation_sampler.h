// Each rank's share of a dataset's indices for an evaluation: every sample exactly once.

#ifndef LOCKSTEP_SAMPLER_EVALUATION_SAMPLER_H_
#define LOCKSTEP_SAMPLER_EVALUATION_SAMPLER_H_

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::sampler {

struct EvaluationSamplerOptions {
  int64_t num_replicas = 1;  // How many ranks share the dataset: the world size.
  int64_t rank = 0;          // Which of them this is, in [0, num_replicas).
};

// A torch::data sampler that deals a dataset's indices out in ascending order: rank r gets r, r + num_replicas, ... and
// no index is repeated or left out, so that sums over all ranks are exact. DistributedSampler repeats some samples to
// give every rank equally many, which counts those twice.
//
// The price is that ranks differ by one index, and so may differ by one batch: a collective per batch (which
// DistributedDataParallel's forward and SyncBatchNorm can be) would not find its partners. Use the module inside, and
// all-reduce the sums once, after the loop, which a rank with no samples at all comes to as well:
//
//   absl::StatusOr<EvaluationSampler> sampler =
//       EvaluationSampler::Create(10000, {.num_replicas = world_size, .rank = rank});
//   auto loader = torch::data::make_data_loader(dataset, *sampler, 64);
//   torch::Tensor sums = torch::zeros({2}, torch::kInt64);  // correct, count
//   for (auto& batch : *loader) sums += Evaluate(batch);
//   group->AllReduce(sums);
//
// Takes the same memory for any size. Copies share nothing. Not thread-safe.
//
// Inside LibTorch's interfaces there is no status to return, so the members that say so throw c10::ValueError.
class EvaluationSampler : public torch::data::samplers::Sampler<> {
 public:
  // InvalidArgument where size is not in [1, 2^62], num_replicas is not positive, or rank is not in [0, num_replicas).
  static absl::StatusOr<EvaluationSampler> Create(int64_t size, EvaluationSamplerOptions options);

  // This rank's indices: size / num_replicas, rounded up on the first size % num_replicas ranks and down on the others.
  int64_t num_samples() const;
  // All ranks' indices: the dataset's size.
  int64_t total_size() const { return size_; }

  // Starts again, or after load() goes on there, once. `new_size` is for a dataset that has grown or shrunk; it also
  // forgets what load() has read. Throws c10::ValueError where new_size is not in [1, 2^62].
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices of this rank, fewer at the end, then nullopt until reset(). Throws c10::ValueError
  // where batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // Writes how many indices next() has given out, and goes there: the next reset() or next() goes on. Every rank has
  // its own. load() throws c10::ValueError, and changes nothing, where size or num_replicas are not this sampler's or
  // this rank has fewer indices, and c10::Error where the archive lacks a field.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  EvaluationSampler(int64_t size, const EvaluationSamplerOptions& options) : size_(size), options_(options) {}

  int64_t size_;
  EvaluationSamplerOptions options_;
  int64_t position_ = 0;   // How many of this rank's indices next() has given out or load() has skipped.
  bool restored_ = false;  // The next reset() keeps position_.
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_EVALUATION_SAMPLER_H_
