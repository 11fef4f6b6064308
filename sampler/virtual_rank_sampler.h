// Divides a dataset's indices among virtual ranks, of which each rank has several.

#ifndef LOCKSTEP_SAMPLER_VIRTUAL_RANK_SAMPLER_H_
#define LOCKSTEP_SAMPLER_VIRTUAL_RANK_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::sampler {

// The division of the virtual ranks 0 to V - 1 among the ranks.
enum class VirtualRankOrder {
  kBlocks,      // even blocks, as ddp::DistributedDataParallel divides them
  kRoundRobin,  // rank r of W has r, r + W, r + 2 W and so on, as with fsdp::FullyShardedDataParallel
};

// For training with virtual ranks (ddp::Options::virtual_ranks, fsdp::Options::virtual_ranks): a rank trains for some of
// V virtual ranks. Virtual rank v gets the batches that DistributedSampler gives with num_replicas = V and rank = v, on
// any number of ranks. next() gives a batch of this rank's first virtual rank, then one of its second, and so on, then
// the next batch of the first: the order in which the wrapper's VirtualRanks() asks for them. So one loader serves a
// rank:
//
//   absl::StatusOr<VirtualRankSampler> sampler =
//       VirtualRankSampler::Create(60000, group->rank(), group->size(), {.num_replicas = 8});
//   LOCKSTEP_ASSIGN_OR_RETURN(auto loader, data::Loader::Create(&dataset, &*sampler, {.batch_size = 32}));
//
// If a step accumulates the gradients of several batches, a virtual rank has its batches of the step one after another:
// give their number as `batches_in_turn`.
//
// batch_size is the size of a virtual rank's batch. At the end of an epoch each virtual rank's last batch is equally
// short. If a loader drops short batches, it drops these. With one virtual rank the sampler equals a
// DistributedSampler.
//
// All virtual ranks of a rank share one order, so memory does not grow with their number.
//
// Copies and thread safety are as for DistributedSampler.
class VirtualRankSampler : public Sampler {
 public:
  // The sampler of rank number `rank` of `ranks`. As DistributedSampler::Create: options.num_replicas is the number of
  // virtual ranks V, and options.rank is ignored. `order` is the wrapper's. InvalidArgument: as there, `rank` is not a
  // rank, there are more ranks than virtual ranks, or batches_in_turn is not positive.
  static absl::StatusOr<VirtualRankSampler> Create(int64_t size, int64_t rank, int64_t ranks,
                                                   DistributedSamplerOptions options, int64_t batches_in_turn = 1,
                                                   VirtualRankOrder order = VirtualRankOrder::kBlocks);

  // As in DistributedSampler. The indices of a rank are the indices of all its virtual ranks.
  void set_epoch(int64_t epoch) { places_.set_epoch(epoch); }
  int64_t epoch() const { return places_.epoch(); }
  int64_t num_samples() const { return places_.num_samples() * num_virtual_ranks(); }
  int64_t total_size() const { return places_.total_size(); }
  int64_t num_remaining() const { return places_.num_remaining() * num_virtual_ranks(); }

  // The virtual ranks of this rank, [first(), last()) with kBlocks, and their number.
  int64_t first() const { return first_; }
  int64_t last() const { return first_ + num_virtual_ranks(); }
  int64_t num_virtual_ranks() const { return static_cast<int64_t>(taken_.size()); }

  // As DistributedSampler::State(): the place after `consumed` indices of this rank. Call it between two steps, when
  // each virtual rank has used equally many. The state is then the same on every rank, and the same for any number of
  // ranks. Throws c10::ValueError if `consumed` is not between 0 and num_remaining(), or not a multiple of
  // num_virtual_ranks().
  SamplerState State(int64_t consumed) const;

  // As DistributedSampler::Restore(). The state may come from another number of ranks, or of virtual ranks.
  absl::Status Restore(const SamplerState& state);

  // As DistributedSampler::reset(). The first batch is then virtual rank first()'s.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The next `batch_size` indices of the virtual rank whose turn it is, fewer at the end of its epoch, then nullopt
  // until reset(). A copy that was never reset resets first. Throws c10::ValueError if batch_size is 0.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

 private:
  VirtualRankSampler(DistributedSampler places, int64_t first, int64_t stride, int64_t number, int64_t batches_in_turn)
      : places_(std::move(places)),
        first_(first),
        stride_(stride),
        batches_in_turn_(batches_in_turn),
        taken_(static_cast<size_t>(number)) {}

  DistributedSampler places_;  // has the epoch and its order; its own next() is not used
  int64_t first_, stride_;     // the virtual ranks are first_, first_ + stride_, first_ + 2 * stride_, ...
  int64_t batches_in_turn_;
  std::vector<int64_t> taken_;  // by virtual rank of this rank: indices of the pass that next() has returned
  size_t turn_ = 0;             // the place in taken_ of the virtual rank whose turn it is
  int64_t batches_ = 0;         // of this turn
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_VIRTUAL_RANK_SAMPLER_H_
