// Shards that outlive a group, for elastic::ShardedModel.

#ifndef LOCKSTEP_FSDP_INTERNAL_KEPT_SHARDS_H_
#define LOCKSTEP_FSDP_INTERNAL_KEPT_SHARDS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep::fsdp::internal {

// A part of a parameter that does not depend on the number of ranks. Two ranks have its values in private memory, and
// step them to the same bits.
struct KeptShard {
  std::string parameter;       // its name in the module: "blocks.0.fc.weight"
  int64_t begin = 0, end = 0;  // in the parameter's memory; `begin` is a multiple of 16
  at::Tensor tensor;           // flat, the optimizer's parameter; without elements on ranks that do not keep it
  // Ranks of the present group; equal if there is one rank.
  int owner = 0;   // gives its values to all ranks
  int second = 0;  // has the values too if the owner dies
};

// All shards of a module, in the order of its parameters, and the module that is wrapped with them in the present
// group. The functions are null if none is.
struct KeptShards {
  std::vector<KeptShard> shards;
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    at::ScalarType dtype;  // when the module is not wrapped
    bool divided;          // in shards; false: it is frozen
  };
  std::vector<Parameter> parameters;  // all of the module, each once
  // Waits for the gradients of this rank's shards. FailedPrecondition: no backward has ended since the last step.
  std::function<absl::Status()> prepare_step;
  // After the optimizer's step: gives the module of every rank the new values. Every rank must call it.
  std::function<absl::Status()> publish;
  // Gives the module of a rank that has all shards all values until the next forward or step. Every rank must call it, so
  // that all begin the next forward alike.
  std::function<void(bool has_all)> assemble;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_KEPT_SHARDS_H_
