// Where the values of the parameters are.

#ifndef LOCKSTEP_FSDP_INTERNAL_PARAMETER_MEMORY_H_
#define LOCKSTEP_FSDP_INTERNAL_PARAMETER_MEMORY_H_

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "absl/status/status.h"
#include "lockstep/fsdp/internal/unit_plan.h"

namespace lockstep::fsdp::internal {

class ParameterMemory {
 public:
  virtual ~ParameterMemory() = default;

  // Returns the memory of a piece that this rank owns: flat, with the parameter's values. The optimizer steps it.
  virtual at::Tensor Shard(size_t unit, const Piece& piece) const = 0;

  // After the optimizer's step, on every rank: until it returns, no rank may read the module's parameters.
  virtual absl::Status AfterStep() = 0;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_PARAMETER_MEMORY_H_
