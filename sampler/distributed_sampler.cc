#include "lockstep/sampler/distributed_sampler.h"

#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
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
std::string Text(Permutation value) { return std::string(PermutationName(value)); }

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

absl::Status CheckNumReplicas(int64_t num_replicas) {
  if (num_replicas > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("DistributedSampler: num_replicas: expected a positive number, found ", num_replicas));
}

void ThrowValueErrorUnlessOk(const absl::Status& status) {
  TORCH_CHECK_VALUE(status.ok(), std::string(status.message()));
}

c10::IValue ReadField(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value;
}

}  // namespace

// What copies of one sampler have in common.
struct DistributedSampler::Shared {
  absl::Mutex mutex;
  // The pass that is under way in some copy, or else the one that the next reset begins.
  Pass pass ABSL_GUARDED_BY(mutex);
  bool restored ABSL_GUARDED_BY(mutex) = false;      // The next reset begins it,
  int64_t restored_size ABSL_GUARDED_BY(mutex) = 0;  // if it deals out a dataset of this size.
};

absl::StatusOr<DistributedSampler> DistributedSampler::Create(int64_t size, DistributedSamplerOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("size", 1, kMaxSize, size));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumReplicas(options.num_replicas));
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("rank", 0, options.num_replicas - 1, options.rank));
  return DistributedSampler(size, options);
}

DistributedSampler::DistributedSampler(int64_t size, const DistributedSamplerOptions& options)
    : size_(size), options_(options), shared_(std::make_shared<Shared>()) {}

void DistributedSampler::set_epoch(int64_t epoch) {
  TORCH_CHECK_VALUE(epoch >= 0, "DistributedSampler::set_epoch: expected an epoch of at least 0, found ", epoch);
  absl::MutexLock lock(&shared_->mutex);
  if (epoch == shared_->pass.epoch) return;
  shared_->pass = {epoch, 0};
  shared_->restored = false;
}

DistributedSampler::Pass DistributedSampler::CurrentPass() const {
  absl::MutexLock lock(&shared_->mutex);
  return shared_->pass;
}

int64_t DistributedSampler::epoch() const { return CurrentPass().epoch; }

int64_t DistributedSampler::NumSamplesFrom(int64_t start) const {
  const int64_t places = std::max<int64_t>(size_ - start, 0);
  const bool uneven = places % options_.num_replicas != 0;
  return places / options_.num_replicas + (uneven && !options_.drop_last ? 1 : 0);
}

int64_t DistributedSampler::num_samples() const { return NumSamplesFrom(0); }

int64_t DistributedSampler::total_size() const { return num_samples() * options_.num_replicas; }

int64_t DistributedSampler::num_remaining() const { return NumSamplesFrom(CurrentPass().start); }

internal::Order DistributedSampler::OrderOf(int64_t epoch) const {
  if (!options_.shuffle) return internal::Order::Sequential(size_);
  return internal::Order::Shuffled(size_, options_.permutation, options_.seed, epoch);
}

void DistributedSampler::Fill(const Pass& pass, int64_t first, int64_t count, internal::Order& order,
                              int64_t* indices) const {
  const uint64_t place = static_cast<uint64_t>(pass.start) + options_.rank + first * options_.num_replicas;
  order.Fill(place, options_.num_replicas, count, indices);
}

std::vector<int64_t> DistributedSampler::Indices() const {
  const Pass whole = {epoch(), 0};
  internal::Order order = OrderOf(whole.epoch);
  std::vector<int64_t> indices(num_samples());
  Fill(whole, 0, static_cast<int64_t>(indices.size()), order, indices.data());
  return indices;
}

SamplerState DistributedSampler::StateAt(const Pass& pass, int64_t consumed) const {
  SamplerState state;
  state.size = size_;
  state.num_replicas = options_.num_replicas;
  state.seed = options_.seed;
  state.epoch = pass.epoch;
  // A tail that drop_last leaves out is finished with too.
  const bool finished = consumed == NumSamplesFrom(pass.start);
  state.consumed = finished ? size_ : pass.start + consumed * options_.num_replicas;
  state.shuffle = options_.shuffle;
  state.drop_last = options_.drop_last;
  state.permutation = options_.permutation;
  return state;
}

SamplerState DistributedSampler::State(int64_t consumed) const {
  const Pass pass = CurrentPass();
  ThrowValueErrorUnlessOk(CheckInRange("consumed", 0, NumSamplesFrom(pass.start), consumed));
  return StateAt(pass, consumed);
}

absl::Status DistributedSampler::Restore(const SamplerState& state) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("size", size_, state.size));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("seed", options_.seed, state.seed));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("shuffle", options_.shuffle, state.shuffle));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("drop_last", options_.drop_last, state.drop_last));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("permutation", options_.permutation, state.permutation));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumReplicas(state.num_replicas));
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("epoch", 0, std::numeric_limits<int64_t>::max(), state.epoch));
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("consumed", 0, size_, state.consumed));
  started_ = false;
  absl::MutexLock lock(&shared_->mutex);
  shared_->pass = {state.epoch, state.consumed};
  shared_->restored = true;
  shared_->restored_size = state.size;
  return absl::OkStatus();
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  started_ = false;
  order_.reset();
  if (new_size) {
    TORCH_CHECK_VALUE(1 <= *new_size && *new_size <= kMaxSize,
                      "DistributedSampler::reset: new_size: expected a value in [1, ", kMaxSize, "], found ",
                      *new_size);
    size_ = static_cast<int64_t>(*new_size);
  }
  {
    absl::MutexLock lock(&shared_->mutex);
    const bool go_on = std::exchange(shared_->restored, false) && shared_->restored_size == size_;
    if (!go_on) shared_->pass.start = 0;
    pass_ = shared_->pass;
  }
  position_ = 0;
  order_ = OrderOf(pass_.epoch);
  started_ = true;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  TORCH_CHECK_VALUE(batch_size > 0, "DistributedSampler::next: expected a batch_size of at least 1, found 0");
  if (!started_) reset();
  const int64_t remaining = NumSamplesFrom(pass_.start) - position_;
  if (remaining == 0) {
    order_.reset();
    return std::nullopt;
  }
  std::vector<size_t> batch(std::min<size_t>(batch_size, remaining));
  static_assert(std::is_same_v<std::make_signed_t<size_t>, int64_t>, "the two may alias");
  const int64_t count = static_cast<int64_t>(batch.size());
  Fill(pass_, position_, count, *order_, reinterpret_cast<int64_t*>(batch.data()));
  position_ += count;
  return batch;
}

IndexIterator DistributedSampler::begin() {
  reset();
  return IndexIterator(this);
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const SamplerState state = started_ ? StateAt(pass_, position_) : State(0);
  archive.write("size", state.size);
  archive.write("num_replicas", state.num_replicas);
  archive.write("seed", state.seed);
  archive.write("epoch", state.epoch);
  archive.write("consumed", state.consumed);
  archive.write("shuffle", state.shuffle);
  archive.write("drop_last", state.drop_last);
  archive.write("feistel", state.permutation == Permutation::kFeistel);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  SamplerState state;
  state.size = ReadField(archive, "size").toInt();
  state.num_replicas = ReadField(archive, "num_replicas").toInt();
  state.seed = ReadField(archive, "seed").toInt();
  state.epoch = ReadField(archive, "epoch").toInt();
  state.consumed = ReadField(archive, "consumed").toInt();
  state.shuffle = ReadField(archive, "shuffle").toBool();
  state.drop_last = ReadField(archive, "drop_last").toBool();
  if (ReadField(archive, "feistel").toBool()) state.permutation = Permutation::kFeistel;
  ThrowValueErrorUnlessOk(Restore(state));
}

}  // namespace lockstep::sampler
