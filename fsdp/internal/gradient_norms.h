// The norms of whole gradients, of which each rank has a part.

#ifndef LOCKSTEP_FSDP_INTERNAL_GRADIENT_NORMS_H_
#define LOCKSTEP_FSDP_INTERNAL_GRADIENT_NORMS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/internal/shard_reducer.h"

namespace lockstep::fsdp::internal {

// Computes norms with the bits of a whole gradient's on one rank, for any number of ranks. The rank that owns a
// parameter's first element gets the other parts of its gradient, and computes the norm. Holds the parts of one unit at a time.
class GradientNorms {
 public:
  // The ranks of `group`, which is borrowed, have all shards together.
  explicit GradientNorms(comm::ProcessGroup* group) : group_(group) {}

  // Returns the norm of order `norm_type` of each of `parameters` that has a gradient, in their order, as tensors without
  // dimensions on the gradients' device. Call it after ShardReducer::Wait(), on every rank.
  absl::StatusOr<std::vector<at::Tensor>> Compute(const ShardReducer& reducer,
                                                  const std::vector<at::Tensor>& parameters, double norm_type) const;

 private:
  // Adds for each of the unit's parameters the norm of its gradient, if it has one and this rank owns its first element.
  // Others are undefined.
  absl::Status ComputeUnit(const ShardReducer& reducer, size_t unit, double norm_type,
                           std::vector<at::Tensor>& own) const;
  // The parts of one gradient, by the place of their first element.
  using Parts = std::map<int64_t, at::Tensor>;

  // Returns the parts of each of the unit's parameters, on the rank that owns the first one.
  absl::StatusOr<std::vector<Parts>> Exchange(const ShardReducer& reducer, size_t unit) const;

  comm::ProcessGroup* const group_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_GRADIENT_NORMS_H_
