// Sums the ranks' gradients unit by unit while backward runs. Each rank gets the sums of the elements that it owns.

#ifndef LOCKSTEP_FSDP_INTERNAL_SHARD_REDUCER_H_
#define LOCKSTEP_FSDP_INTERNAL_SHARD_REDUCER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/tree_sum/tree_scatter.h"
#include "lockstep/ddp/internal/autograd_hooks.h"
#include "lockstep/fsdp/internal/device_streams.h"
#include "lockstep/fsdp/internal/mesh.h"
#include "lockstep/fsdp/internal/parameter_memory.h"
#include "lockstep/fsdp/internal/sharded_unit.h"
#include "lockstep/fsdp/internal/unit_gradients.h"
#include "lockstep/fsdp/internal/unit_plan.h"

namespace lockstep::fsdp::internal {

// The last unit is reduced first, since backward completes it first. Units are reduced in this order on all ranks. A
// unit's gradients are moved to a buffer, which is summed. A step has one backward in each of rounds() rounds, and may
// have several in round 0 if that is the only one: their sums are added.
//
// On a GPU the stream of the last gradient copies, and another one sums. No thread waits for the GPU before Wait().
//
// Errors in backward are thrown as StatusError. Only one thread at a time may use it.
class ShardReducer {
 public:
  // `mesh` and `memory` are borrowed. `leaves`: the number of gradients that are averaged. `units`: the trained
  // ones. `end_backward` is called when a backward has ended that is reduced. Throws c10::Error if memory ran out.
  ShardReducer(const Mesh* mesh, ParameterMemory* memory, int leaves, std::vector<ShardedUnit> units,
               std::function<void()> end_backward);
  ShardReducer(const ShardReducer&) = delete;
  ShardReducer& operator=(const ShardReducer&) = delete;

  int rounds() const { return scatter_.rounds(); }
  int LeafOf(int round) const { return scatter_.LeafOf(round, mesh_->group()->rank()); }

  size_t unit_count() const { return units_.size(); }
  const ShardedUnit& unit(size_t index) const { return units_[index].gradients.unit(); }

  // The next backward is this round's.
  void SetRound(int round) { round_ = round; }
  // False: backward only accumulates gradients in the parameters.
  void set_sync(bool sync) { sync_ = sync; }
  bool sync() const { return sync_; }
  // Takes part in a round in which this rank has no leaf.
  void SkipRound(int round);
  // The number of backward passes that were reduced since the last Clear().
  int reduced() const { return reduced_; }
  // True between the first gradient of a backward that is reduced and its end.
  bool running() const { return next_.has_value(); }
  // The first parameter whose place in autograd was taken, as by module->to(dtype); nullptr if there is none.
  const NamedTensor* Replaced() const;

  // Blocks until all sums are there, at most for the group's timeout. On a GPU too: then they are valid.
  absl::Status Wait();
  // After Wait(): the mean gradient of a piece that this rank owns, flat, in the shard's dtype. Undefined if no rank
  // had one.
  at::Tensor GradientOf(size_t unit, const Piece& piece) const { return units_[unit].gradients.GradientOf(piece); }
  // The bytes of this rank's sums between two rounds, at most, and of the gradients that GradientOf() copies, since
  // shards have another dtype.
  struct GradientBytes {
    int64_t sums = 0, copies = 0;
  };
  GradientBytes gradient_bytes() const;
  // After the optimizer's step: the next one begins.
  void Clear() { reduced_ = 0; }

 private:
  struct Unit {
    UnitGradients gradients;
    size_t missing;  // gradients, in this backward
  };
  struct Sending {
    size_t unit;
    int chunk;
    at::Tensor buffer;
    bool is_last;  // round of the step
  };

  void OnGradient(size_t unit, size_t parameter);
  void LaunchReady();
  void EndBackward();
  void Launch(size_t unit, bool brings);
  void LaunchChunk(size_t unit, int chunk, bool brings);
  void WaitForTurn(size_t unit, int chunk);
  absl::Status WaitForOldest();
  void ReadFlags();
  const std::vector<NamedTensor>& parameters(size_t index) const { return unit(index).parameters; }
  size_t UnitAt(size_t place) const { return units_.size() - 1 - place; }

  const Mesh* const mesh_;
  ParameterMemory* const memory_;
  const comm::TreeScatter scatter_;
  const SideStream stream_;  // that sums
  const std::function<void()> end_backward_;
  std::vector<Unit> units_;
  std::deque<Sending> sending_;
  std::unique_ptr<ddp::internal::AccumulatorHooks> hooks_;
  int round_ = 0;
  int reduced_ = 0;
  std::optional<size_t> next_;  // while a backward runs: the place in the order of the unit that is launched next
  bool sync_ = true;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_SHARD_REDUCER_H_
