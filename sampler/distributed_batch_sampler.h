// Divides a dataset among ranks, as batches of indices.

#ifndef LOCKSTEP_SAMPLER_DISTRIBUTED_BATCH_SAMPLER_H_
#define LOCKSTEP_SAMPLER_DISTRIBUTED_BATCH_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::sampler {

struct DistributedBatchSamplerOptions {
  DistributedSamplerOptions sampler;
  int64_t batch_size = 1;  // Indices in one batch of one rank.
  bool drop_last = false;  // Drops each rank's last batch if it is short. Differs from sampler.drop_last.
};

// Equals Python's torch.utils.data.BatchSampler(DistributedSampler(...), batch_size, drop_last): every rank gets the
// same number of batches, of the same sizes.
//
//   DistributedBatchSamplerOptions options;
//   options.sampler.num_replicas = 2;
//   options.sampler.rank = rank;
//   options.batch_size = 32;
//   absl::StatusOr<DistributedBatchSampler> batches = DistributedBatchSampler::Create(60000, options);
//   batches->set_epoch(epoch);
//   for (const std::vector<size_t>& batch : *batches) Train(Load(batch));
//
// Copies and thread safety are as for DistributedSampler.
class DistributedBatchSampler {
 public:
  class Iterator;

  // InvalidArgument: as DistributedSampler::Create, or batch_size is not positive.
  static absl::StatusOr<DistributedBatchSampler> Create(int64_t size, const DistributedBatchSamplerOptions& options);

  // As DistributedSampler::set_epoch.
  void set_epoch(int64_t epoch) { sampler_.set_epoch(epoch); }
  int64_t epoch() const { return sampler_.epoch(); }

  // The number of batches of this rank in an epoch.
  int64_t num_batches() const { return BatchesOf(sampler_.num_samples()); }
  // The number of batches of this rank from the restored place to the end of its epoch. See
  // DistributedSampler::num_remaining().
  int64_t num_remaining() const { return BatchesOf(sampler_.num_remaining()); }

  // The place after `batches` batches of this rank, counted from the start of this pass over the epoch. Throws
  // c10::ValueError if `batches` is not between 0 and num_remaining().
  SamplerState State(int64_t batches) const;

  // Continues from `state`. It may come from another number of ranks or another batch size. Errors are the same as from
  // DistributedSampler::Restore.
  absl::Status Restore(const SamplerState& state) { return sampler_.Restore(state); }

  // Starts epoch(), or continues from the restored place.
  void reset() { sampler_.reset(); }
  // The next batch of this rank, or nullopt at the end, until reset().
  std::optional<std::vector<size_t>> next();

  // Calls reset() and then iterates over the batches of next().
  Iterator begin();
  Iterator end();

 private:
  DistributedBatchSampler(DistributedSampler sampler, const DistributedBatchSamplerOptions& options)
      : sampler_(std::move(sampler)), batch_size_(options.batch_size), drop_last_(options.drop_last) {}

  int64_t BatchesOf(int64_t samples) const;

  DistributedSampler sampler_;
  int64_t batch_size_;
  bool drop_last_;
};

// An input iterator.
class DistributedBatchSampler::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = std::vector<size_t>;
  using difference_type = std::ptrdiff_t;
  using pointer = const std::vector<size_t>*;
  using reference = const std::vector<size_t>&;

  Iterator() = default;  // the end
  explicit Iterator(DistributedBatchSampler* batches) : batches_(batches), batch_(batches->next()) {}

  const std::vector<size_t>& operator*() const { return *batch_; }
  const std::vector<size_t>* operator->() const { return &*batch_; }
  Iterator& operator++() {
    batch_ = batches_->next();
    return *this;
  }
  Iterator operator++(int) {
    const Iterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const Iterator& a, const Iterator& b) { return a.batch_.has_value() == b.batch_.has_value(); }
  friend bool operator!=(const Iterator& a, const Iterator& b) { return !(a == b); }

 private:
  DistributedBatchSampler* batches_ = nullptr;
  std::optional<std::vector<size_t>> batch_;
};

inline DistributedBatchSampler::Iterator DistributedBatchSampler::begin() {
  reset();
  return Iterator(this);
}

inline DistributedBatchSampler::Iterator DistributedBatchSampler::end() { return Iterator(); }

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_DISTRIBUTED_BATCH_SAMPLER_H_
