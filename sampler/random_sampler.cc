#include "lockstep/sampler/random_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/sampler/internal/checks.h"

namespace lockstep::sampler {
namespace {

at::TensorOptions Int64OnCpu() { return at::TensorOptions(at::kLong).device(at::kCPU); }

at::Generator SeededByTheDefaultGenerator() {
  const int64_t seed = at::empty({}, Int64OnCpu()).random_().item<int64_t>();
  return at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
}

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void SetState(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

absl::StatusOr<RandomSampler> RandomSampler::Create(int64_t size, RandomSamplerOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckInRange("RandomSampler: size", 1, internal::kMaxSize, size));
  LOCKSTEP_RETURN_IF_ERROR(
      internal::CheckInRange("RandomSampler: num_samples", 1, internal::kMaxSize, options.num_samples.value_or(size)));
  if (options.generator.defined() && !options.generator.device().is_cpu()) {
    return absl::InvalidArgumentError(
        absl::StrCat("RandomSampler: generator: expected one of cpu, found one of ", options.generator.device().str()));
  }
  return RandomSampler(size, options);
}

void RandomSampler::reset(std::optional<size_t> new_size) {
  const bool go_on = std::exchange(restored_, false) && !new_size;
  if (new_size) size_ = internal::NewSizeOrThrow("RandomSampler", 1, *new_size);
  if (go_on) return;
  start_state_.reset();
  position_ = 0;
}

void RandomSampler::StartEpoch() {
  generator_ = options_.generator.defined() ? options_.generator : SeededByTheDefaultGenerator();
  start_state_ = StateOf(generator_);
  num_draws_ = 0;
}

at::Tensor RandomSampler::Draw() {
  if (!options_.replacement) return at::randperm(size_, generator_, Int64OnCpu());
  const int64_t count = std::min(DrawSize(), num_samples() - num_draws_ * DrawSize());
  return at::randint(size_, {count}, generator_, Int64OnCpu());
}

void RandomSampler::DrawUpTo(int64_t position) {
  for (; num_draws_ <= position / DrawSize(); ++num_draws_) {
    drawn_.reset();  // two permutations at a time would take twice the memory
    drawn_ = Draw();
  }
}

std::optional<std::vector<size_t>> RandomSampler::next(size_t batch_size) {
  internal::ThrowIfEmptyBatch("RandomSampler", batch_size);
  restored_ = false;
  if (!start_state_.defined()) StartEpoch();
  const int64_t end = position_ + std::min<size_t>(batch_size, num_samples() - position_);
  std::vector<size_t> batch;
  batch.reserve(end - position_);
  while (position_ < end) {
    DrawUpTo(position_);
    const int64_t first = position_ % DrawSize();
    const int64_t count = std::min(end - position_, DrawSize() - first);
    const int64_t* indices = static_cast<const int64_t*>(drawn_.const_data_ptr()) + first;
    batch.insert(batch.end(), indices, indices + count);
    position_ += count;
  }
  if (batch.size() < batch_size) DrawUpTo(num_samples());
  if (batch.empty()) return std::nullopt;
  return batch;
}

at::Tensor RandomSampler::StartState() const {
  return !start_state_.defined() && options_.generator.defined() ? StateOf(options_.generator) : start_state_;
}

void RandomSampler::GoTo(const at::Tensor& state, int64_t consumed) {
  const bool started = consumed > 0;
  at::Generator generator = options_.generator.defined() ? options_.generator : at::detail::createCPUGenerator();
  if (started || options_.generator.defined()) SetState(generator, state);
  generator_ = generator;
  start_state_ = started ? state : at::Tensor();
  position_ = consumed;
  num_draws_ = 0;
  if (started) DrawUpTo(consumed - 1);
  restored_ = started;
}

}  // namespace lockstep::sampler
