// Checkpoints of fully sharded training that every rank writes a part of, in the layout of Python's
// torch.distributed.checkpoint (DCP). Any number of ranks, any Options and Python's fully_shard load them.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::ShardedStateDict state, fsdp::GetStateDict(net, optimizer));
//   state.push_back({"epoch", 3});
//   LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded("/data/step_1000", state, group.get()));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(fsdp::LoadStateDict("/data/step_1000", net, optimizer));  // the epoch: LoadSharded()

#ifndef LOCKSTEP_FSDP_STATE_DICT_H_
#define LOCKSTEP_FSDP_STATE_DICT_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/state_dict.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/internal/sharded_access.h"

namespace lockstep::fsdp {

struct StateDictOptions {
  // Where the state dicts are in the checkpoint: {"model": ..., "optim": ...}. If empty, at the top.
  std::string model = "model";
  std::string optimizer = "optim";
  // As in Python's StateDictOptions: the options of a group are saved under each parameter's name, "optim.param_groups.
  // 0.weight.lr", and not under the group's number, "optim.param_groups.0.lr". Loading takes both.
  bool flatten_optimizer_state_dict = false;
};

namespace internal {

absl::StatusOr<checkpoint::ShardedStateDict> GetStateDict(const ShardedModule& sharded, const torch::nn::Module& module,
                                                          const torch::optim::Optimizer* optimizer,
                                                          const StateDictOptions& options);
absl::Status LoadStateDict(absl::string_view directory, const ShardedModule& sharded, const torch::nn::Module& module,
                           torch::optim::Optimizer* optimizer, const StateDictOptions& options,
                           const checkpoint::LoadOptions& load_options);

}  // namespace internal

// Returns the names of Python's get_state_dict(net, optimizer): "model.0.weight", "optim.state.0.weight.exp_avg". A rank
// has its shards of trained parameters and their states, as boxes that share memory with them, and all of the rest:
// frozen parameters, buffers, counts of steps and options. Save the result before the next step. Every rank must call it
// with an optimizer over shards(). All ranks return the same error.
//
// InvalidArgument, naming ranks and parameter: the optimizer has a parameter that is not one of shards(), some ranks
// only have a parameter or its state, or the ranks' groups, options or states differ. Unimplemented: the optimizer is of
// a type that checkpoint::OptimizerStateDict() does not take, or a state is neither like its parameter nor a number.
template <typename Net>
absl::StatusOr<checkpoint::ShardedStateDict> GetStateDict(const FullyShardedDataParallel<Net>& net,
                                                          const torch::optim::Optimizer& optimizer,
                                                          const StateDictOptions& options = {}) {
  return internal::GetStateDict(internal::ShardedAccess::Of(net), *net.module(), &optimizer, options);
}

// The model's part of it, which sends nothing.
template <typename Net>
absl::StatusOr<checkpoint::ShardedStateDict> GetModelStateDict(const FullyShardedDataParallel<Net>& net,
                                                               const StateDictOptions& options = {}) {
  return internal::GetStateDict(internal::ShardedAccess::Of(net), *net.module(), nullptr, options);
}

// Loads model and optimizer from a checkpoint in `directory` that any number of ranks wrote, in C++ or Python. A
// parameter without state in the checkpoint has none afterwards. Tensors that the model does not have are left out, as in
// Python. `optimizer` must have the checkpoint's groups, in their order. Every rank must call it, and blocks until all
// have loaded. All ranks return the same: OK, or the error of the lowest rank that has one. After an error load a
// checkpoint again, as some parameters may be the new ones.
//
// InvalidArgument, naming the parameter: it is in no group of the checkpoint or in another one, the number of groups
// differs, a shape differs, or the state lacks a key that the optimizer needs. NotFound: the checkpoint does not have a
// tensor of the model, or no optimizer. Other errors come from GetStateDict() and checkpoint::LoadSharded().
template <typename Net>
absl::Status LoadStateDict(absl::string_view directory, const FullyShardedDataParallel<Net>& net,
                           torch::optim::Optimizer& optimizer, const StateDictOptions& options = {},
                           const checkpoint::LoadOptions& load_options = {}) {
  return internal::LoadStateDict(directory, internal::ShardedAccess::Of(net), *net.module(), &optimizer, options,
                                 load_options);
}

// Loads the model only.
template <typename Net>
absl::Status LoadModelStateDict(absl::string_view directory, const FullyShardedDataParallel<Net>& net,
                                const StateDictOptions& options = {},
                                const checkpoint::LoadOptions& load_options = {}) {
  return internal::LoadStateDict(directory, internal::ShardedAccess::Of(net), *net.module(), nullptr, options,
                                 load_options);
}

}  // namespace lockstep::fsdp

#endif  // LOCKSTEP_FSDP_STATE_DICT_H_
