// Loads this rank's part of an optimizer from a sharded checkpoint.

#ifndef LOCKSTEP_FSDP_INTERNAL_OPTIMIZER_LOADER_H_
#define LOCKSTEP_FSDP_INTERNAL_OPTIMIZER_LOADER_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/sharded/state_dict.h"
#include "lockstep/fsdp/internal/sharded_parameters.h"
#include "lockstep/fsdp/internal/whole_optimizer.h"

namespace lockstep::fsdp::internal {

//   OptimizerLoader loader(parameters, whole, rank, "optim");
//   LOCKSTEP_RETURN_IF_ERROR(loader.Plan(directory, options, state));              // adds what must be loaded
//   LOCKSTEP_RETURN_IF_ERROR(LoadSharded(directory, state, group, options));
//   LOCKSTEP_RETURN_IF_ERROR(loader.Load(state, optimizer));
//
// A parameter's state is what the checkpoint has below "`prefix`.state.NAME.", whatever the optimizer has now.
class OptimizerLoader {
 public:
  // The arguments must outlive the loader. `whole` has the groups of all ranks.
  OptimizerLoader(const std::vector<ShardedParameter>& parameters, const WholeOptimizer& whole, int rank,
                  const std::string& prefix)
      : parameters_(parameters), whole_(whole), rank_(rank), prefix_(prefix.empty() ? "" : prefix + ".") {}

  absl::Status Plan(absl::string_view directory, const checkpoint::LoadOptions& options,
                    checkpoint::ShardedStateDict& state);
  absl::Status Load(const checkpoint::ShardedStateDict& state, torch::optim::Optimizer& optimizer) const;

 private:
  using Items = std::map<std::string, const checkpoint::ShardedItem*>;
  // The place of an entry in the optimizer's state dict.
  struct Wanted {
    bool is_option = false;
    size_t index = 0;  // of the group or the parameter
    std::string key;
    at::Tensor shard;  // filled in place; undefined if the entry is a value
  };

  static std::vector<std::pair<std::string, const checkpoint::ShardedItem*>> Below(const Items& items,
                                                                                   const std::string& prefix);
  absl::Status PlanGroups(const Items& items, checkpoint::ShardedStateDict& state);
  absl::Status PlanState(const Items& items, size_t parameter, checkpoint::ShardedStateDict& state);
  absl::Status CheckNames(const std::vector<checkpoint::Value>& groups, size_t group, size_t parameter) const;

  const std::vector<ShardedParameter>& parameters_;
  const WholeOptimizer& whole_;
  const int rank_;
  const std::string prefix_;
  bool flat_ = false;           // the checkpoint has a group's options under each parameter's name
  size_t first_ = 0;            // the place in the state dict of the first entry of `wanted_`
  std::vector<Wanted> wanted_;  // as the entries from `first_` on
};

// This rank's part of a tensor with the parameter's shape. `like_shard` has its elements; it may be undefined if the
// rank has none.
checkpoint::ShardedTensor ShardedTensorOf(const ShardedParameter& parameter, const at::Tensor& like_shard, int rank);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_OPTIMIZER_LOADER_H_
