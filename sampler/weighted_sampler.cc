#include "lockstep/sampler/weighted_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/status.h"
#include "lockstep/sampler/internal/checks.h"

namespace lockstep::sampler {
namespace {

absl::Status Error(absl::string_view field, absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("WeightedSampler: ", field, ": expected ", expected, ", found ", found));
}

absl::Status CheckWeights(const std::vector<double>& weights) {
  if (weights.empty()) return Error("weights", "one or more", "0");
  const auto wrong =
      std::find_if(weights.begin(), weights.end(), [](double weight) { return !(weight >= 0) || std::isinf(weight); });
  if (wrong != weights.end()) {
    return Error(absl::StrCat("weights[", wrong - weights.begin(), "]"), "a finite number of at least 0",
                 absl::StrCat(*wrong));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (sum == 0 || std::isinf(sum)) return Error("weights", "a finite sum above 0", absl::StrCat(sum));
  return absl::OkStatus();
}

absl::Status CheckNumSamples(const std::vector<double>& weights, int64_t num_samples, bool replacement) {
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckInRange("WeightedSampler: num_samples", 1, internal::kMaxSize, num_samples));
  const int64_t zeros = std::count(weights.begin(), weights.end(), 0.0);
  const int64_t drawable = static_cast<int64_t>(weights.size()) - zeros;
  if (replacement || num_samples <= drawable) return absl::OkStatus();
  return Error("num_samples", absl::StrCat("without replacement at most ", drawable, ", the number of weights above 0"),
               absl::StrCat(num_samples));
}

// Computes what at::multinomial does, from the same random numbers, but without its limit of 2^24 weights.
at::Tensor Draw(const at::Tensor& weights, int64_t count, bool replacement, at::Generator random) {
  if (replacement && count > 1) {
    at::Tensor sums = weights.cumsum(0);
    sums.div_(sums[-1].item<double>());
    return at::searchsorted(sums, at::rand({count}, std::move(random), weights.options()));
  }
  const at::Tensor keys = weights / at::empty_like(weights).exponential_(1, std::move(random));
  return count == 1 ? keys.argmax(-1, /*keepdim=*/true) : std::get<1>(keys.topk(count));
}

DistributedSamplerOptions PlacesOptions(const WeightedSamplerOptions& options) {
  DistributedSamplerOptions places;
  places.num_replicas = options.num_replicas;
  places.rank = options.rank;
  places.shuffle = false;
  places.seed = options.seed;
  return places;
}

}  // namespace

absl::StatusOr<WeightedSampler> WeightedSampler::Create(const std::vector<double>& weights, int64_t num_samples,
                                                        WeightedSamplerOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckWeights(weights));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumSamples(weights, num_samples, options.replacement));
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckRank("WeightedSampler", options.num_replicas, options.rank));
  LOCKSTEP_ASSIGN_OR_RETURN(DistributedSampler places, DistributedSampler::Create(num_samples, PlacesOptions(options)));
  return WeightedSampler(weights, num_samples, options, std::move(places));
}

WeightedSampler::WeightedSampler(const std::vector<double>& weights, int64_t num_drawn,
                                 const WeightedSamplerOptions& options, DistributedSampler places)
    : weights_(at::tensor(weights, at::kDouble)),
      num_drawn_(num_drawn),
      options_(options),
      places_(std::move(places)),
      epoch_is_fixed_(std::make_shared<absl::Mutex>()) {}

void WeightedSampler::set_epoch(int64_t epoch) {
  MutexLock lock(*epoch_is_fixed_);
  places_.set_epoch(epoch);
}

absl::Status WeightedSampler::Restore(const SamplerState& state) {
  MutexLock lock(*epoch_is_fixed_);
  LOCKSTEP_RETURN_IF_ERROR(Annotate(places_.Restore(state), "WeightedSampler"));
  drawn_.reset();
  return absl::OkStatus();
}

void WeightedSampler::reset(std::optional<size_t> new_size) {
  if (new_size) {
    internal::ThrowValueErrorUnlessOk(
        internal::CheckSame("WeightedSampler::reset: new_size", weights_.numel(), static_cast<int64_t>(*new_size)));
  }
  drawn_.reset();
  uint64_t seed = static_cast<uint64_t>(options_.seed);  // unsigned as in a generator: Python's negative seeds wrap too
  {
    MutexLock lock(*epoch_is_fixed_);
    seed += static_cast<uint64_t>(places_.epoch());
    places_.reset();
  }
  drawn_ = Draw(weights_, num_drawn_, options_.replacement, at::detail::createCPUGenerator(seed));
}

std::optional<std::vector<size_t>> WeightedSampler::next(size_t batch_size) {
  internal::ThrowIfEmptyBatch("WeightedSampler", batch_size);
  if (!drawn_.defined()) reset();
  std::optional<std::vector<size_t>> batch = places_.next(batch_size);
  if (!batch) return std::nullopt;
  const int64_t* indices = static_cast<const int64_t*>(drawn_.const_data_ptr());
  for (size_t& index : *batch) index = indices[index];
  return batch;
}

}  // namespace lockstep::sampler
