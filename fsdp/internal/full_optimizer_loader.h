// Loads this rank's part of an optimizer from the state dict of a whole one.

#ifndef LOCKSTEP_FSDP_INTERNAL_FULL_OPTIMIZER_LOADER_H_
#define LOCKSTEP_FSDP_INTERNAL_FULL_OPTIMIZER_LOADER_H_

#include <torch/optim/optimizer.h>

#include "absl/status/status.h"
#include "lockstep/checkpoint/deferred/tensors.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/fsdp/internal/sharded_module.h"

namespace lockstep::fsdp::internal {

// See LoadFullOptimizerStateDict(). Tensors of `deferred` are read one at a time. Every rank must call it. `call` names
// the operation.
absl::Status LoadFullOptimizer(const checkpoint::Value& state_dict, const checkpoint::DeferredTensors& deferred,
                               const ShardedModule& sharded, const char* call, torch::optim::Optimizer& optimizer);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_FULL_OPTIMIZER_LOADER_H_
