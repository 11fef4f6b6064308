// A unit: parameters that are reduced together.

#ifndef LOCKSTEP_FSDP_INTERNAL_SHARDED_UNIT_H_
#define LOCKSTEP_FSDP_INTERNAL_SHARDED_UNIT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/ddp/internal/parameter_check.h"
#include "lockstep/fsdp/internal/unit_plan.h"

namespace lockstep::fsdp::internal {

using ddp::internal::NamedTensor;

// The parameters of a unit that are trained, and their places.
struct ShardedUnit {
  std::vector<NamedTensor> parameters;
  UnitLayout layout;
  at::ScalarType shard_dtype = at::kFloat;   // of the shards, and of their gradients for the optimizer
  at::ScalarType reduce_dtype = at::kFloat;  // in which gradients are averaged
  // The shards of which the parameters are copies, if they are: flat, by the parameter's place and the first element.
  std::map<std::pair<int, int64_t>, at::Tensor> kept;

  // The bytes of the largest chunk, in the reduction's dtype.
  int64_t chunk_bytes() const { return layout.chunk_numel * static_cast<int64_t>(c10::elementSize(reduce_dtype)); }
  at::Tensor Kept(const Piece& piece) const { return kept.at({piece.parameter, piece.begin}); }
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_SHARDED_UNIT_H_
