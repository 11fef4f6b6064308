// The trained parameters of a sharded module, and the elements of them that each rank owns.

#ifndef LOCKSTEP_FSDP_INTERNAL_SHARDED_PARAMETERS_H_
#define LOCKSTEP_FSDP_INTERNAL_SHARDED_PARAMETERS_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/sharded/state_dict.h"
#include "lockstep/fsdp/internal/sharded_module.h"

namespace lockstep::fsdp::internal {

struct ShardedParameter {
  // The elements [begin, end) in the parameter's memory.
  struct Part {
    int rank = 0;
    int64_t begin = 0, end = 0;
    int replica = 0;  // the number of other ranks before this one that have them too
  };

  // Returns the part of rank `rank`, or nullptr if it has none.
  const Part* PartOf(int rank) const;

  std::string name;                   // its first name in the module
  at::Tensor tensor;                  // of the module: for its sizes, as its values need not be there
  at::Tensor shard;                   // of this rank; undefined if it has no part
  at::ScalarType dtype = at::kFloat;  // of the shards
  std::vector<Part> parts;            // ascending, at most one a rank; none if the parameter has no elements
};

// Returns them in the module's order, the frozen ones too.
std::vector<ShardedParameter> ShardedParametersOf(const ShardedModule& module);

// Returns the boxes of `flat`, which are the elements from `begin` on of a tensor with the sizes and strides of
// `parameter`, in the order of its memory. They share flat's memory.
std::vector<checkpoint::Shard> PartsOf(const at::Tensor& flat, int64_t begin, const at::Tensor& parameter);

// Returns the elements of `whole` in the order of the memory of `parameter`, which has its sizes. Copies them only if
// their order is another one.
at::Tensor InMemoryOrder(const at::Tensor& whole, const at::Tensor& parameter);

// The optimizer's parameters as places in `parameters`, by group. InvalidArgument: one is not a shard.
absl::StatusOr<std::vector<std::vector<size_t>>> PlacesOf(const torch::optim::Optimizer& optimizer,
                                                          const std::vector<ShardedParameter>& parameters);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_SHARDED_PARAMETERS_H_
