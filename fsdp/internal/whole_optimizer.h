// An optimizer of which each rank has a part, as one optimizer.

#ifndef LOCKSTEP_FSDP_INTERNAL_WHOLE_OPTIMIZER_H_
#define LOCKSTEP_FSDP_INTERNAL_WHOLE_OPTIMIZER_H_

#include <c10/core/ScalarType.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/internal/sharded_parameters.h"

namespace lockstep::fsdp::internal {

// A parameter is named by its place in the module's ShardedParametersOf().
struct WholeOptimizer {
  struct Group {
    checkpoint::Value options;    // as in Python's param_groups, without "params"
    std::vector<size_t> members;  // ascending
  };
  // A value of a parameter's state.
  struct Item {
    std::string key;
    at::ScalarType dtype = at::ScalarType::Undefined;  // of a tensor with the parameter's shape
    checkpoint::Value value;                           // in place of a tensor: the same on all ranks
    bool IsTensor() const { return dtype != at::ScalarType::Undefined; }
  };

  std::vector<Group> groups;
  std::vector<std::vector<Item>> states;  // by parameter
  // This rank's states, by parameter, as in Python's "state": None, or a dict that shares the optimizer's memory. Its
  // tensors have the shapes of shards.
  std::vector<checkpoint::Value> own;
};

enum class Exchange { kGroups, kGroupsAndStates };

// Exchanges what each rank's optimizer has: with kGroups members only, without options and states. Every rank must call
// it, and all return the same status. `call` names the operation.
//
// InvalidArgument, naming ranks and parameter: an optimizer has a parameter that is not a shard, or lacks the shard of a
// parameter that another rank has; or groups, options or states differ. Unimplemented: the optimizer is of another
// type than checkpoint::OptimizerStateDict() takes, or a state is neither like its parameter nor a number.
absl::StatusOr<WholeOptimizer> GatherOptimizer(const torch::optim::Optimizer& optimizer,
                                               const std::vector<ShardedParameter>& parameters,
                                               comm::ProcessGroup* group, const char* call, Exchange exchange);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_WHOLE_OPTIMIZER_H_
