#include "lockstep/fsdp/state_dict.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/sharded/sharded.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/fsdp/internal/optimizer_loader.h"
#include "lockstep/fsdp/internal/sharded_parameters.h"
#include "lockstep/fsdp/internal/whole_optimizer.h"

namespace lockstep::fsdp::internal {
namespace {

using checkpoint::KeyPath;
using checkpoint::ShardedStateDict;
using checkpoint::Value;

KeyPath Path(const std::string& first, std::vector<Value> steps) {
  if (!first.empty()) steps.insert(steps.begin(), first);
  return KeyPath(std::move(steps));
}

void AddModel(const torch::nn::Module& module, const std::vector<ShardedParameter>& parameters, int rank,
              const std::string& prefix, ShardedStateDict& state) {
  std::map<const at::TensorImpl*, const ShardedParameter*> by_tensor;
  for (const ShardedParameter& parameter : parameters) {
    if (!parameter.parts.empty()) by_tensor.emplace(parameter.tensor.unsafeGetTensorImpl(), &parameter);
  }
  std::map<std::string, const ShardedParameter*> by_name;  // a tied one under each of its names
  for (const auto& item : module.named_parameters()) {
    const auto found = by_tensor.find(item.value().unsafeGetTensorImpl());
    if (found != by_tensor.end()) by_name.emplace(item.key(), found->second);
  }
  const Value whole = checkpoint::StateDict(module);
  for (const auto& [key, value] : whole.entries()) {
    const auto found = by_name.find(key.string_value());
    if (found == by_name.end()) {
      state.push_back({Path(prefix, {key}), value});
    } else {
      state.push_back({Path(prefix, {key}), ShardedTensorOf(*found->second, found->second->shard, rank)});
    }
  }
}

void AddStates(const WholeOptimizer& optimizer, const std::vector<ShardedParameter>& parameters, int rank,
               const StateDictOptions& options, ShardedStateDict& state) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    const std::string& name = parameters[p].name;
    for (const WholeOptimizer::Item& item : optimizer.states[p]) {
      const KeyPath path = options.flatten_optimizer_state_dict
                               ? Path(options.optimizer, {absl::StrCat("state.", name, ".", item.key)})
                               : Path(options.optimizer, {"state", name, item.key});
      if (!item.IsTensor()) {
        state.push_back({path, item.value});
        continue;
      }
      const Value* own = optimizer.own[p].Find(item.key);
      state.push_back({path, ShardedTensorOf(parameters[p], own ? own->tensor() : at::Tensor(), rank)});
    }
  }
}

void AddGroups(const WholeOptimizer& optimizer, const std::vector<ShardedParameter>& parameters,
               const StateDictOptions& options, ShardedStateDict& state) {
  for (size_t g = 0; g < optimizer.groups.size(); ++g) {
    const WholeOptimizer::Group& group = optimizer.groups[g];
    Value names = Value::List();
    for (const size_t member : group.members) names.Append(parameters[member].name);
    if (!options.flatten_optimizer_state_dict) {
      for (const auto& [key, value] : group.options.entries()) {
        state.push_back({Path(options.optimizer, {"param_groups", g, key}), value});
      }
      state.push_back({Path(options.optimizer, {"param_groups", g, "params"}), names});
      continue;
    }
    for (const Value& name : names.items()) {
      for (const auto& [key, value] : group.options.entries()) {
        const std::string flat = absl::StrCat("param_groups.", name.string_value(), ".", key.string_value());
        state.push_back({Path(options.optimizer, {flat}), value});
      }
    }
  }
}

constexpr char kLoad[] = "fsdp::LoadStateDict";

}  // namespace

absl::StatusOr<ShardedStateDict> GetStateDict(const ShardedModule& sharded, const torch::nn::Module& module,
                                              const torch::optim::Optimizer* optimizer,
                                              const StateDictOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotKept(sharded));
  const ShardsOnly shards_only(sharded);
  const std::vector<ShardedParameter> parameters = ShardedParametersOf(sharded);
  const int rank = sharded.group()->rank();
  ShardedStateDict state;
  AddModel(module, parameters, rank, options.model, state);
  if (!optimizer) return state;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const WholeOptimizer whole,
      GatherOptimizer(*optimizer, parameters, sharded.group(), "fsdp::GetStateDict", Exchange::kGroupsAndStates));
  AddStates(whole, parameters, rank, options, state);
  AddGroups(whole, parameters, options, state);
  return state;
}

absl::Status LoadStateDict(absl::string_view directory, const ShardedModule& sharded, const torch::nn::Module& module,
                           torch::optim::Optimizer* optimizer, const StateDictOptions& options,
                           const checkpoint::LoadOptions& load_options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotKept(sharded));
  const ShardsOnly shards_only(sharded);
  const std::vector<ShardedParameter> parameters = ShardedParametersOf(sharded);
  const int rank = sharded.group()->rank();
  ShardedStateDict state;
  AddModel(module, parameters, rank, options.model, state);
  if (!optimizer) {
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadSharded(directory, state, sharded.group(), load_options));
    return sharded.Publish();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const WholeOptimizer whole,
                            GatherOptimizer(*optimizer, parameters, sharded.group(), kLoad, Exchange::kGroups));
  OptimizerLoader loader(parameters, whole, rank, options.optimizer);
  const auto caught = [](auto f) {
    absl::Status status;
    status.Update(TorchStatus("", [&] { status = f(); }));
    return status;
  };
  LOCKSTEP_RETURN_IF_ERROR(
      comm::Agree(sharded.group(), kLoad, caught([&] { return loader.Plan(directory, load_options, state); })));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadSharded(directory, state, sharded.group(), load_options));
  LOCKSTEP_RETURN_IF_ERROR(comm::Agree(sharded.group(), kLoad, caught([&] { return loader.Load(state, *optimizer); })));
  return sharded.Publish();
}

}  // namespace lockstep::fsdp::internal
