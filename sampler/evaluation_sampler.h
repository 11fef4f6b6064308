// Divides a dataset's indices among ranks for evaluation: every sample exactly once.

#ifndef LOCKSTEP_SAMPLER_EVALUATION_SAMPLER_H_
#define LOCKSTEP_SAMPLER_EVALUATION_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep::sampler {
namespace internal {
struct Archive;
}

struct EvaluationSamplerOptions {
  int64_t num_replicas = 1;  // The number of ranks that share the dataset (the world size).
  int64_t rank = 0;          // This rank, in [0, num_replicas).
};

// Divides a dataset's indices in ascending order: rank r gets r, r + num_replicas, ... No index is repeated or left
// out, so sums over all ranks are exact. DistributedSampler repeats some samples to give every rank equally many, and
// so counts these twice.
//
// The numbers of indices of two ranks may differ by one, and so may their numbers of batches. A collective in each
// batch, as in DistributedDataParallel's forward and SyncBatchNorm, would then wait for a rank that does not call it.
// Use the wrapped module directly, and all-reduce the sums once after the loop. A rank without samples reaches that
// call too:
//
//   absl::StatusOr<EvaluationSampler> sampler =
//       EvaluationSampler::Create(10000, {.num_replicas = world_size, .rank = rank});
//   auto loader = torch::data::make_data_loader(dataset, TorchSampler(*sampler), 64);  // torch_sampler.h
//   torch::Tensor sums = torch::zeros({2}, torch::kInt64);  // correct, count
//   for (auto& batch : *loader) sums += Evaluate(batch);
//   group->AllReduce(sums);
//
// Memory does not depend on the size. Copies share nothing. Not thread-safe.
//
// Sampler's interface cannot return a status, so the members that say so throw c10::ValueError.
class EvaluationSampler : public Sampler {
 public:
  // InvalidArgument: size is not in [0, 2^62], num_replicas is not positive, or rank is not in [0, num_replicas).
  static absl::StatusOr<EvaluationSampler> Create(int64_t size, EvaluationSamplerOptions options);

  // The number of indices of this rank: size / num_replicas, rounded up on the first size % num_replicas ranks and down
  // on the others.
  int64_t num_samples() const;
  // The number of indices of all ranks: the dataset's size.
  int64_t total_size() const { return size_; }

  // Starts again. After TorchSampler::load() it continues from the loaded place, once. If the dataset has grown or
  // shrunk, `new_size` sets its size and discards the loaded place. Throws c10::ValueError if new_size is not in [1,
  // 2^62].
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices of this rank, fewer at the end, then nullopt until reset(). Throws c10::ValueError if
  // batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

 private:
  friend struct internal::Archive;  // TorchSampler's save() and load()

  EvaluationSampler(int64_t size, const EvaluationSamplerOptions& options) : size_(size), options_(options) {}

  int64_t size_;
  EvaluationSamplerOptions options_;
  int64_t position_ = 0;   // this rank's indices that next() has returned or TorchSampler::load() has skipped
  bool restored_ = false;  // the next reset() keeps position_
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_EVALUATION_SAMPLER_H_
