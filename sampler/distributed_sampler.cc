#include "lockstep/sampler/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/status.h"

namespace lockstep::sampler {
namespace {

// Up to here total_size() is below 2^63 for any num_replicas: it is under size + num_replicas, and is num_replicas
// where that is larger.
constexpr int64_t kMaxSize = int64_t{1} << 62;

std::string Text(int64_t value) { return absl::StrCat(value); }
std::string Text(bool value) { return value ? "true" : "false"; }

template <typename T>
absl::Status CheckSame(absl::string_view field, T expected, T found) {
  if (expected == found) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("DistributedSampler::Restore: ", field, ": expected ", Text(expected), ", found ", Text(found)));
}

absl::Status CheckInRange(absl::string_view field, int64_t low, int64_t high, int64_t found) {
  if (low <= found && found <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("DistributedSampler: ", field, ": expected a value in [", low, ", ", high, "], found ", found));
}

void ThrowValueErrorUnlessOk(const absl::Status& status) {
  TORCH_CHECK_VALUE(status.ok(), std::string(status.message()));
}

int64_t ReadInt(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value.toInt();
}

bool ReadBool(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value.toBool();
}

}  // namespace

// What copies of one sampler have in common.
struct DistributedSampler::Shared {
  absl::Mutex mutex;
  int64_t epoch ABSL_GUARDED_BY(mutex) = 0;
  int64_t restored ABSL_GUARDED_BY(mutex) = 0;       // Where in `epoch` the next reset starts,
  int64_t restored_size ABSL_GUARDED_BY(mutex) = 0;  // if it deals out a dataset of this size.
};

absl::StatusOr<DistributedSampler> DistributedSampler::Create(int64_t size, DistributedSamplerOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("size", 1, kMaxSize, size));
  if (options.num_replicas <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("DistributedSampler: num_replicas: expected a positive number, found ", options.num_replicas));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("rank", 0, options.num_replicas - 1, options.rank));
  return DistributedSampler(size, options);
}

DistributedSampler::DistributedSampler(int64_t size, const DistributedSamplerOptions& options)
    : size_(size), options_(options), shared_(std::make_shared<Shared>()) {}

void DistributedSampler::set_epoch(int64_t epoch) {
  TORCH_CHECK_VALUE(epoch >= 0, "DistributedSampler::set_epoch: expected an epoch of at least 0, found ", epoch);
  absl::MutexLock lock(&shared_->mutex);
  if (epoch != shared_->epoch) shared_->restored = 0;
  shared_->epoch = epoch;
}

int64_t DistributedSampler::epoch() const {
  absl::MutexLock lock(&shared_->mutex);
  return shared_->epoch;
}

int64_t DistributedSampler::num_samples() const {
  const bool uneven = size_ % options_.num_replicas != 0;
  return size_ / options_.num_replicas + (uneven && !options_.drop_last ? 1 : 0);
}

int64_t DistributedSampler::total_size() const { return num_samples() * options_.num_replicas; }

int64_t DistributedSampler::SequentialIndex(int64_t i) const {
  const int64_t position = options_.rank + i * options_.num_replicas;
  return position < size_ ? position : position % size_;
}

std::vector<int64_t> DistributedSampler::ShuffledIndices(int64_t epoch) const {
  // Unsigned, because that is how a generator takes a seed: Python's negative ones wrap around in the same way.
  const uint64_t seed = static_cast<uint64_t>(options_.seed) + static_cast<uint64_t>(epoch);
  const at::Tensor permutation =
      at::randperm(size_, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kLong).device(at::kCPU));
  const int64_t* permuted = permutation.const_data_ptr<int64_t>();
  std::vector<int64_t> order(num_samples());
  for (int64_t i = 0; i < order.size(); ++i) order[i] = permuted[SequentialIndex(i)];
  return order;
}

std::vector<int64_t> DistributedSampler::Indices() const {
  if (options_.shuffle) return ShuffledIndices(epoch());
  std::vector<int64_t> order(num_samples());
  for (int64_t i = 0; i < order.size(); ++i) order[i] = SequentialIndex(i);
  return order;
}

SamplerState DistributedSampler::StateAt(int64_t epoch, int64_t consumed) const {
  SamplerState state;
  state.size = size_;
  state.num_replicas = options_.num_replicas;
  state.seed = options_.seed;
  state.epoch = epoch;
  state.consumed = consumed;
  state.shuffle = options_.shuffle;
  state.drop_last = options_.drop_last;
  return state;
}

SamplerState DistributedSampler::State(int64_t consumed) const {
  ThrowValueErrorUnlessOk(CheckInRange("consumed", 0, num_samples(), consumed));
  return StateAt(epoch(), consumed);
}

absl::Status DistributedSampler::Restore(const SamplerState& state) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("size", size_, state.size));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("num_replicas", options_.num_replicas, state.num_replicas));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("seed", options_.seed, state.seed));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("shuffle", options_.shuffle, state.shuffle));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("drop_last", options_.drop_last, state.drop_last));
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("epoch", 0, std::numeric_limits<int64_t>::max(), state.epoch));
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("consumed", 0, num_samples(), state.consumed));
  started_ = false;
  absl::MutexLock lock(&shared_->mutex);
  shared_->epoch = state.epoch;
  shared_->restored = state.consumed;
  shared_->restored_size = state.size;
  return absl::OkStatus();
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  started_ = false;
  if (new_size) {
    TORCH_CHECK_VALUE(1 <= *new_size && *new_size <= kMaxSize,
                      "DistributedSampler::reset: new_size: expected a value in [1, ", kMaxSize, "], found ",
                      *new_size);
    size_ = static_cast<int64_t>(*new_size);
  }
  {
    absl::MutexLock lock(&shared_->mutex);
    started_epoch_ = shared_->epoch;
    const int64_t restored = std::exchange(shared_->restored, 0);
    position_ = shared_->restored_size == size_ ? restored : 0;
  }
  if (options_.shuffle) order_ = ShuffledIndices(started_epoch_);
  started_ = true;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  TORCH_CHECK_VALUE(batch_size > 0, "DistributedSampler::next: expected a batch_size of at least 1, found 0");
  if (!started_) reset();
  const int64_t remaining = num_samples() - position_;
  if (remaining == 0) return std::nullopt;
  std::vector<size_t> batch(std::min<size_t>(batch_size, remaining));
  for (size_t& index : batch) {
    index = options_.shuffle ? order_[position_] : SequentialIndex(position_);
    ++position_;
  }
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  SamplerState state = StateAt(started_epoch_, position_);
  if (!started_) {
    absl::MutexLock lock(&shared_->mutex);
    state = StateAt(shared_->epoch, shared_->restored);
  }
  archive.write("size", state.size);
  archive.write("num_replicas", state.num_replicas);
  archive.write("seed", state.seed);
  archive.write("epoch", state.epoch);
  archive.write("consumed", state.consumed);
  archive.write("shuffle", state.shuffle);
  archive.write("drop_last", state.drop_last);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  SamplerState state;
  state.size = ReadInt(archive, "size");
  state.num_replicas = ReadInt(archive, "num_replicas");
  state.seed = ReadInt(archive, "seed");
  state.epoch = ReadInt(archive, "epoch");
  state.consumed = ReadInt(archive, "consumed");
  state.shuffle = ReadBool(archive, "shuffle");
  state.drop_last = ReadBool(archive, "drop_last");
  ThrowValueErrorUnlessOk(Restore(state));
}

}  // namespace lockstep::sampler
