// The gradients of one unit: a rank's own, on their way to a buffer, and the sums of all ranks that it gets.

#ifndef LOCKSTEP_FSDP_INTERNAL_UNIT_GRADIENTS_H_
#define LOCKSTEP_FSDP_INTERNAL_UNIT_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "lockstep/comm/tree_sum/tree_scatter.h"
#include "lockstep/comm/work.h"
#include "lockstep/fsdp/internal/device_streams.h"
#include "lockstep/fsdp/internal/mesh.h"
#include "lockstep/fsdp/internal/sharded_unit.h"
#include "lockstep/fsdp/internal/unit_plan.h"

namespace lockstep::fsdp::internal {

// With several replicas a rank adds up its part of its slice, and gets the other parts from the ranks that own the same
// slice. Not thread-safe.
class UnitGradients {
 public:
  // `mesh` is borrowed. Throws c10::Error if memory ran out.
  UnitGradients(const Mesh* mesh, ShardedUnit unit);

  const ShardedUnit& unit() const { return unit_; }
  c10::Device device() const { return slice_.device(); }
  // The bytes of the sums of this rank's slice, and of its part of it.
  int64_t slice_bytes() const { return static_cast<int64_t>(slice_.nbytes()); }
  int64_t part_bytes() const { return slice_bytes() / mesh_->replicas(); }

  // The current stream writes to a gradient.
  void AddStream() { streams_.Add(device()); }
  // A gradient that is not in the reduction's dtype is added to the gradients of earlier backward passes in that dtype, as
  // Python's fully_shard does, whose bits these are.
  void Accumulate(size_t parameter);
  int chunks() const { return unit_.layout.chunks; }
  // Returns the part of a buffer of bytes that the chunk takes, in the reduction's dtype.
  at::Tensor LeafIn(const at::Tensor& buffer, int chunk) const;
  // Fills the leaf with a chunk of this rank's gradients, in the order of the ranks that add them up. Call it for each
  // chunk in turn. The last one releases the gradients.
  void MoveTo(const at::Tensor& leaf, int chunk);

  // The sum of this rank's part of the chunk.
  comm::TreeScatter::Sum* sum(int chunk);
  // Gets the other parts of the slice, once this rank's sums are there.
  void StartGather();
  absl::Status FinishGather();
  // The sums of a backward pass are kept aside, and added to the last one's.
  void KeepEarlier();
  void AddEarlier();

  // For each piece of this rank one element: not 0 if a rank had a gradient.
  std::vector<at::Tensor> Flags() const;
  // Sets the values of Flags(), in their order. Returns the values that follow.
  const bool* SetFlags(const bool* flags);
  // The mean gradient of a piece that this rank owns, flat, in the shard's dtype. Undefined if no rank had one.
  at::Tensor GradientOf(const Piece& piece) const;

 private:
  struct Chunk {
    std::vector<int64_t> bounds;  // the parts that the ranks add up, by rank
    comm::TreeScatter::Sum sum;   // this rank's part of it
  };

  // Calls f(begin, place, count) for each part of a piece and its flag that one rank adds up in this chunk: `count`
  // elements from the piece's element `begin` on are at `place` in the leaf.
  template <typename F>
  void ForParts(const Piece& piece, int chunk, const F& f) const;
  void CollectGradients();
  int64_t Numel(int place) const;  // of a slice
  at::Tensor OwnPart() const;      // of the slice

  const Mesh* mesh_;
  ShardedUnit unit_;
  at::Tensor slice_;  // of the sums
  std::vector<Chunk> chunks_;
  std::optional<comm::Work> gather_;        // of the other parts
  at::Tensor earlier_;                      // the slices of this step's earlier backward passes
  std::vector<at::Tensor> accumulated_;     // by parameter: flat, in the reduction's dtype, until it is moved
  at::Tensor tail_;                         // the elements of a leaf after a piece that has a gradient
  StreamUses streams_;                      // of the gradients
  absl::flat_hash_set<int64_t> with_flag_;  // the flags of this rank's pieces that are not 0
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_UNIT_GRADIENTS_H_
