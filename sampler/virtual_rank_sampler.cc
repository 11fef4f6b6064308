#include "lockstep/sampler/virtual_rank_sampler.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/sampler/internal/checks.h"

namespace lockstep::sampler {

absl::StatusOr<VirtualRankSampler> VirtualRankSampler::Create(int64_t size, DistributedSamplerOptions options,
                                                              int64_t first, int64_t last) {
  options.rank = 0;
  absl::StatusOr<DistributedSampler> places = DistributedSampler::Create(size, options);
  if (!places.ok()) return Annotate(places.status(), "VirtualRankSampler");
  if (!(0 <= first && first < last && last <= options.num_replicas)) {
    return absl::InvalidArgumentError(
        absl::StrCat("VirtualRankSampler: expected 0 <= first < last <= ", options.num_replicas,
                     ", the number of virtual ranks, found first = ", first, " and last = ", last));
  }
  return VirtualRankSampler(*std::move(places), first, last);
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
}

std::optional<std::vector<size_t>> VirtualRankSampler::next(size_t batch_size) {
  internal::ThrowIfEmptyBatch("VirtualRankSampler", batch_size);
  if (!places_.started_) reset();
  const int64_t all = places_.NumSamplesFrom(places_.pass_.start);
  // A virtual rank has less left than another one only if the batch size has changed.
  for (size_t i = 0; i < taken_.size(); ++i) {
    const auto virtual_rank = first_ + static_cast<int64_t>(turn_);
    int64_t& taken = taken_[turn_];
    turn_ = (turn_ + 1) % taken_.size();
    if (taken == all) continue;
    const auto count = static_cast<int64_t>(std::min<size_t>(batch_size, all - taken));
    std::vector<size_t> batch = places_.Batch(virtual_rank, taken, count);
    taken += count;
    return batch;
  }
  places_.order_.reset();
  return std::nullopt;
}

}  // namespace lockstep::sampler
