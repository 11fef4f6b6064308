#include "lockstep/sampler/evaluation_sampler.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/status.h"
#include "lockstep/sampler/internal/checks.h"

namespace lockstep::sampler {

absl::StatusOr<EvaluationSampler> EvaluationSampler::Create(int64_t size, EvaluationSamplerOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckInRange("EvaluationSampler: size", 0, internal::kMaxSize, size));
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckRank("EvaluationSampler", options.num_replicas, options.rank));
  return EvaluationSampler(size, options);
}

int64_t EvaluationSampler::num_samples() const {
  return options_.rank < size_ ? (size_ - options_.rank - 1) / options_.num_replicas + 1 : 0;
}

void EvaluationSampler::reset(std::optional<size_t> new_size) {
  const bool go_on = std::exchange(restored_, false) && !new_size;
  if (new_size) size_ = internal::NewSizeOrThrow("EvaluationSampler", 0, *new_size);
  if (!go_on) position_ = 0;
}

std::optional<std::vector<size_t>> EvaluationSampler::next(size_t batch_size) {
  internal::ThrowIfEmptyBatch("EvaluationSampler", batch_size);
  restored_ = false;
  const int64_t remaining = num_samples() - position_;
  if (remaining == 0) return std::nullopt;
  std::vector<size_t> batch(std::min<size_t>(batch_size, remaining));
  for (size_t& index : batch) index = options_.rank + position_++ * options_.num_replicas;
  return batch;
}

}  // namespace lockstep::sampler
