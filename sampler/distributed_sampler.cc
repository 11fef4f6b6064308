#include "lockstep/sampler/distributed_sampler.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/status.h"
#include "lockstep/sampler/internal/checks.h"

namespace lockstep::sampler {

using internal::CheckInRange;
using internal::CheckNumReplicas;
using internal::CheckSame;
using internal::ThrowValueErrorUnlessOk;

// The state that copies of one sampler share.
struct DistributedSampler::Shared {
  absl::Mutex mutex;
  // The current pass of some copy, or else the pass that the next reset begins.
  Pass pass ABSL_GUARDED_BY(mutex);
  bool restored ABSL_GUARDED_BY(mutex) = false;      // the next reset begins it
  int64_t restored_size ABSL_GUARDED_BY(mutex) = 0;  // if the dataset has this size
};

absl::StatusOr<DistributedSampler> DistributedSampler::Create(int64_t size, DistributedSamplerOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("DistributedSampler: size", 0, internal::kMaxSize, size));
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckRank("DistributedSampler", options.num_replicas, options.rank));
  return DistributedSampler(size, options);
}

DistributedSampler::DistributedSampler(int64_t size, const DistributedSamplerOptions& options)
    : size_(size), options_(options), shared_(std::make_shared<Shared>()) {}

void DistributedSampler::set_epoch(int64_t epoch) {
  TORCH_CHECK_VALUE(epoch >= 0, "DistributedSampler::set_epoch: expected an epoch of at least 0, found ", epoch);
  MutexLock lock(shared_->mutex);
  if (epoch == shared_->pass.epoch) return;
  shared_->pass = {epoch, 0};
  shared_->restored = false;
}

DistributedSampler::Pass DistributedSampler::CurrentPass() const {
  MutexLock lock(shared_->mutex);
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

void DistributedSampler::Fill(const Pass& pass, int64_t rank, int64_t first, int64_t count, internal::Order& order,
                              int64_t* indices) const {
  const uint64_t place = static_cast<uint64_t>(pass.start) + rank + first * options_.num_replicas;
  order.Fill(place, options_.num_replicas, count, indices);
}

std::vector<size_t> DistributedSampler::Batch(int64_t rank, int64_t first, int64_t count) {
  std::vector<size_t> batch(count);
  static_assert(std::is_same_v<std::make_signed_t<size_t>, int64_t>, "the two may alias");
  Fill(pass_, rank, first, count, *order_, reinterpret_cast<int64_t*>(batch.data()));
  return batch;
}

std::vector<int64_t> DistributedSampler::Indices() const {
  const Pass whole = {epoch(), 0};
  internal::Order order = OrderOf(whole.epoch);
  std::vector<int64_t> indices(num_samples());
  Fill(whole, options_.rank, 0, static_cast<int64_t>(indices.size()), order, indices.data());
  return indices;
}

SamplerState DistributedSampler::StateAt(const Pass& pass, int64_t consumed) const {
  SamplerState state;
  state.size = size_;
  state.num_replicas = options_.num_replicas;
  state.seed = options_.seed;
  state.epoch = pass.epoch;
  // A tail that drop_last leaves out counts as consumed.
  const bool finished = consumed == NumSamplesFrom(pass.start);
  state.consumed = finished ? size_ : pass.start + consumed * options_.num_replicas;
  state.shuffle = options_.shuffle;
  state.drop_last = options_.drop_last;
  state.permutation = options_.permutation;
  return state;
}

SamplerState DistributedSampler::State(int64_t consumed) const {
  const Pass pass = CurrentPass();
  ThrowValueErrorUnlessOk(CheckInRange("DistributedSampler: consumed", 0, NumSamplesFrom(pass.start), consumed));
  return StateAt(pass, consumed);
}

absl::Status DistributedSampler::Restore(const SamplerState& state) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("DistributedSampler::Restore: size", size_, state.size));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("DistributedSampler::Restore: seed", options_.seed, state.seed));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("DistributedSampler::Restore: shuffle", options_.shuffle, state.shuffle));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("DistributedSampler::Restore: drop_last", options_.drop_last, state.drop_last));
  LOCKSTEP_RETURN_IF_ERROR(CheckSame("DistributedSampler::Restore: permutation", PermutationName(options_.permutation),
                                     PermutationName(state.permutation)));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumReplicas("DistributedSampler", state.num_replicas));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckInRange("DistributedSampler: epoch", 0, std::numeric_limits<int64_t>::max(), state.epoch));
  LOCKSTEP_RETURN_IF_ERROR(CheckInRange("DistributedSampler: consumed", 0, size_, state.consumed));
  started_ = false;
  MutexLock lock(shared_->mutex);
  shared_->pass = {state.epoch, state.consumed};
  shared_->restored = true;
  shared_->restored_size = state.size;
  return absl::OkStatus();
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  started_ = false;
  order_.reset();
  if (new_size) size_ = internal::NewSizeOrThrow("DistributedSampler", 0, *new_size);
  {
    MutexLock lock(shared_->mutex);
    const bool go_on = shared_->restored && shared_->restored_size == size_;
    pass_ = {shared_->pass.epoch, go_on ? shared_->pass.start : 0};
    order_ = OrderOf(pass_.epoch);  // first, so that a restored place is kept if memory runs out
    shared_->pass = pass_;
    shared_->restored = false;
  }
  position_ = 0;
  started_ = true;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  internal::ThrowIfEmptyBatch("DistributedSampler", batch_size);
  if (!started_) reset();
  const int64_t remaining = NumSamplesFrom(pass_.start) - position_;
  if (remaining == 0) {
    order_.reset();
    return std::nullopt;
  }
  const auto count = static_cast<int64_t>(std::min<size_t>(batch_size, remaining));
  std::vector<size_t> batch = Batch(options_.rank, position_, count);
  position_ += count;
  return batch;
}

IndexIterator DistributedSampler::begin() {
  reset();
  return IndexIterator(this);
}

}  // namespace lockstep::sampler
