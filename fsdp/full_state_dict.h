// Checkpoints of fully sharded training as one file with the state dicts of a training in one process, such as one with
// DistributedDataParallel, in C++ or Python. No rank has the whole optimizer's state in memory.
//
//   LOCKSTEP_RETURN_IF_ERROR(fsdp::SaveFullStateDict("last.pt", net, optimizer, [](Value model, Value optimizer) {
//     return Value::Dict({{"epoch", 3}, {"state_dict", model}, {"optimizer", optimizer}});
//   }));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(fsdp::LoadFullOptimizerStateDict("last.pt", "optimizer", net, optimizer));
//
// On any number of ranks the file has the same bytes. checkpoint::Save() writes the same file of the same
// training with DistributedDataParallel and an optimizer of the trained parameters. Load the model before Wrap(), with
// checkpoint::LoadStateDict().

#ifndef LOCKSTEP_FSDP_FULL_STATE_DICT_H_
#define LOCKSTEP_FSDP_FULL_STATE_DICT_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/internal/sharded_access.h"

namespace lockstep::fsdp {

// Returns the value that a file is to have, of the state dicts of the model and the optimizer. It may put them anywhere,
// and leave one out. No operator may read their tensors, whose elements are not in memory.
using ComposeFile =
    std::function<checkpoint::Value(const checkpoint::Value& model, const checkpoint::Value& optimizer)>;

namespace internal {

absl::Status SaveFullStateDict(absl::string_view path, const ShardedModule& sharded, const torch::nn::Module& module,
                               const torch::optim::Optimizer& optimizer, const ComposeFile& compose,
                               const checkpoint::SaveOptions& options);
absl::Status LoadFullOptimizerStateDict(absl::string_view path, const checkpoint::KeyPath& key,
                                        const ShardedModule& sharded, torch::optim::Optimizer& optimizer,
                                        const checkpoint::LoadOptions& options);
absl::Status LoadFullOptimizerStateDict(const checkpoint::Value& state_dict, const ShardedModule& sharded,
                                        torch::optim::Optimizer& optimizer);

}  // namespace internal

// Rank 0 writes the file, and calls `compose`, which the other ranks ignore. When a tensor of the optimizer's state is
// to be written, the other ranks send their parts of it. So rank 0's memory grows by one tensor. Every rank must call
// it, and blocks until the file exists.
//
// Parameters are numbered in the order of groups, and of the module within a group. Frozen parameters are not among
// them. Tensors of the optimizer's state have the strides of their parameters.
//
// All ranks return the same: OK, or the errors of GetStateDict() and checkpoint::Save(). After an error the previous
// file is intact.
template <typename Net>
absl::Status SaveFullStateDict(absl::string_view path, const FullyShardedDataParallel<Net>& net,
                               const torch::optim::Optimizer& optimizer, const ComposeFile& compose,
                               const checkpoint::SaveOptions& options = {}) {
  return internal::SaveFullStateDict(path, internal::ShardedAccess::Of(net), *net.module(), optimizer, compose,
                                     options);
}

// Loads the optimizer's state dict at `key` of a .pt file, which a training in one process, DistributedDataParallel or
// SaveFullStateDict() wrote, into an optimizer over shards(). Each rank reads the tensors of which it has a part, one at
// a time, and keeps its part. Every rank must call it. The state dict names parameters by numbers, in the order of the
// groups, or as Python's full_state_dict=True by names. With one group, it may number frozen parameters too.
//
// All ranks return the same: OK, or the error of the lowest rank that has one. InvalidArgument, naming the parameter:
// numbers of groups or parameters differ, a parameter is missing, a shape differs, or a key is missing. Other errors come
// from checkpoint::LoadEntry() and checkpoint::LoadOptimizerStateDict().
template <typename Net>
absl::Status LoadFullOptimizerStateDict(absl::string_view path, const checkpoint::KeyPath& key,
                                        const FullyShardedDataParallel<Net>& net, torch::optim::Optimizer& optimizer,
                                        const checkpoint::LoadOptions& options = {}) {
  return internal::LoadFullOptimizerStateDict(path, key, internal::ShardedAccess::Of(net), optimizer, options);
}

// Does so from a state dict in memory, whose memory it does not keep.
template <typename Net>
absl::Status LoadFullOptimizerStateDict(const checkpoint::Value& state_dict, const FullyShardedDataParallel<Net>& net,
                                        torch::optim::Optimizer& optimizer) {
  return internal::LoadFullOptimizerStateDict(state_dict, internal::ShardedAccess::Of(net), optimizer);
}

}  // namespace lockstep::fsdp

#endif  // LOCKSTEP_FSDP_FULL_STATE_DICT_H_
