#include "lockstep/sampler/distributed_batch_sampler.h"

#include <c10/util/Exception.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::sampler {

absl::StatusOr<DistributedBatchSampler> DistributedBatchSampler::Create(int64_t size,
                                                                        const DistributedBatchSamplerOptions& options) {
  if (options.batch_size <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("DistributedBatchSampler: batch_size: expected a positive number, found ", options.batch_size));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(DistributedSampler sampler, DistributedSampler::Create(size, options.sampler));
  return DistributedBatchSampler(std::move(sampler), options);
}

int64_t DistributedBatchSampler::BatchesOf(int64_t samples) const {
  const bool short_one = samples % batch_size_ != 0;
  return samples / batch_size_ + (short_one && !drop_last_ ? 1 : 0);
}

SamplerState DistributedBatchSampler::State(int64_t batches) const {
  const int64_t remaining = num_remaining();
  TORCH_CHECK_VALUE(0 <= batches && batches <= remaining, "DistributedBatchSampler: batches: expected a value in [0, ",
                    remaining, "], found ", batches);
  const int64_t samples = sampler_.num_remaining();
  // A short last batch that drop_last leaves out counts as consumed.
  return sampler_.State(batches == remaining ? samples : batches * batch_size_);
}

std::optional<std::vector<size_t>> DistributedBatchSampler::next() {
  std::optional<std::vector<size_t>> batch = sampler_.next(batch_size_);
  if (batch && drop_last_ && static_cast<int64_t>(batch->size()) < batch_size_) return std::nullopt;
  return batch;
}

}  // namespace lockstep::sampler
