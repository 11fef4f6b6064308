#include "lockstep/sampler/virtual_rank_sampler.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lockstep/base/even_blocks.h"
#include "lockstep/base/status.h"
#include "lockstep/sampler/internal/checks.h"

namespace lockstep::sampler {

absl::StatusOr<VirtualRankSampler> VirtualRankSampler::Create(int64_t size, int64_t rank, int64_t ranks,
                                                              DistributedSamplerOptions options,
                                                              int64_t batches_in_turn, VirtualRankOrder order) {
  options.rank = 0;
  absl::StatusOr<DistributedSampler> places = DistributedSampler::Create(size, options);
  if (!places.ok()) return Annotate(places.status(), "VirtualRankSampler");
  if (!(0 <= rank && rank < ranks && ranks <= options.num_replicas)) {
    return absl::InvalidArgumentError(
        absl::StrCat("VirtualRankSampler: expected 0 <= rank < ranks <= ", options.num_replicas,
                     ", the number of virtual ranks, found rank = ", rank, " and ranks = ", ranks));
  }
  if (batches_in_turn <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("VirtualRankSampler: batches_in_turn: expected a positive number, found ", batches_in_turn));
  }
  const int64_t virtual_ranks = options.num_replicas;
  if (order == VirtualRankOrder::kRoundRobin) {
    const int64_t number = (virtual_ranks - rank + ranks - 1) / ranks;
    return VirtualRankSampler(*std::move(places), rank, /*stride=*/ranks, number, batches_in_turn);
  }
  const int64_t begin = BlockBegin(virtual_ranks, ranks, rank), end = BlockBegin(virtual_ranks, ranks, rank + 1);
  return VirtualRankSampler(*std::move(places), begin, /*stride=*/1, end - begin, batches_in_turn);
}

SamplerState VirtualRankSampler::State(int64_t consumed) const {
  internal::ThrowValueErrorUnlessOk(
      internal::CheckInRange("VirtualRankSampler: consumed", 0, num_remaining(), consumed));
  TORCH_CHECK_VALUE(consumed % num_virtual_ranks() == 0, "VirtualRankSampler: consumed: expected a multiple of ",
                    num_virtual_ranks(), ", the number of this rank's virtual ranks, found ", consumed);
  return places_.State(consumed / num_virtual_ranks());
}

absl::Status VirtualRankSampler::Restore(const SamplerState& state) {
  return Annotate(places_.Restore(state), "VirtualRankSampler");
}

void VirtualRankSampler::reset(std::optional<size_t> new_size) {
  places_.reset(new_size);
  std::fill(taken_.begin(), taken_.end(), 0);
  turn_ = 0;
  batches_ = 0;
}

std::optional<std::vector<size_t>> VirtualRankSampler::next(size_t batch_size) {
  internal::ThrowIfEmptyBatch("VirtualRankSampler", batch_size);
  if (!places_.started_) reset();
  const int64_t all = places_.NumSamplesFrom(places_.pass_.start);
  for (size_t turns = 0; turns <= taken_.size(); ++turns) {
    int64_t& taken = taken_[turn_];
    if (taken < all && batches_ < batches_in_turn_) {
      const auto count = static_cast<int64_t>(std::min<size_t>(batch_size, all - taken));
      std::vector<size_t> batch = places_.Batch(first_ + stride_ * static_cast<int64_t>(turn_), taken, count);
      taken += count;
      ++batches_;
      return batch;
    }
    turn_ = (turn_ + 1) % taken_.size();
    batches_ = 0;
  }
  places_.order_.reset();
  return std::nullopt;
}

}  // namespace lockstep::sampler
