#include "lockstep/fsdp/internal/optimizer_loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"

namespace lockstep::fsdp::internal {
namespace {

using checkpoint::KeyPath;
using checkpoint::ShardedItem;
using checkpoint::ShardedStateDict;
using checkpoint::Value;

std::string Shape(const std::vector<int64_t>& sizes) { return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]"); }

bool Contains(const Value& names, const std::string& name) {
  return names.is_list() && std::any_of(names.items().begin(), names.items().end(), [&](const Value& item) {
           return item.is_string() && item.string_value() == name;
         });
}

}  // namespace

checkpoint::ShardedTensor ShardedTensorOf(const ShardedParameter& parameter, const at::Tensor& like_shard, int rank) {
  checkpoint::ShardedTensor tensor{parameter.tensor.sizes().vec(), {}};
  const ShardedParameter::Part* part = parameter.PartOf(rank);
  if (part) tensor.shards = PartsOf(like_shard.detach().reshape({-1}), part->begin, parameter.tensor);
  return tensor;
}

// Keys have no dots, unlike names of parameters.
std::vector<std::pair<std::string, const ShardedItem*>> OptimizerLoader::Below(const Items& items,
                                                                               const std::string& prefix) {
  std::vector<std::pair<std::string, const ShardedItem*>> below;
  for (auto item = items.lower_bound(prefix); item != items.end() && absl::StartsWith(item->first, prefix); ++item) {
    const std::string key = item->first.substr(prefix.size());
    if (!absl::StrContains(key, '.')) below.emplace_back(key, item->second);
  }
  return below;
}

absl::Status OptimizerLoader::PlanGroups(const Items& items, ShardedStateDict& state) {
  const std::string groups = prefix_ + "param_groups.";
  const auto first = items.lower_bound(groups);
  if (first == items.end() || !absl::StartsWith(first->first, groups)) {
    return absl::NotFoundError(absl::StrCat("expected the state dict of an optimizer, found no \"", groups, "\""));
  }
  flat_ = items.count(groups + "0.params") == 0;
  size_t found = 0;
  while (items.count(absl::StrCat(groups, found, ".params")) != 0) ++found;
  if (!flat_ && found != whole_.groups.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", whole_.groups.size(), " param_groups, as the optimizer has, found ", found));
  }
  for (size_t g = 0; g < whole_.groups.size(); ++g) {
    const std::vector<size_t>& members = whole_.groups[g].members;
    for (const size_t member : members) {
      const std::string& name = parameters_[member].name;
      if (!flat_ || !Below(items, absl::StrCat(groups, name, ".")).empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat(name, ": expected its options, found no \"", groups, name, ".\""));
    }
    const std::string where = !flat_ ? absl::StrCat(g) : members.empty() ? "" : parameters_[members[0]].name;
    for (const auto& [key, item] : Below(items, absl::StrCat(groups, where, "."))) {
      wanted_.push_back({true, g, key, at::Tensor()});
      state.push_back({KeyPath(item->name), Value()});
    }
  }
  return absl::OkStatus();
}

absl::Status OptimizerLoader::PlanState(const Items& items, size_t parameter, ShardedStateDict& state) {
  const ShardedParameter& owner = parameters_[parameter];
  const std::vector<int64_t> sizes = owner.tensor.sizes().vec();
  for (const auto& [key, item] : Below(items, absl::StrCat(prefix_, "state.", owner.name, "."))) {
    Wanted& wanted = wanted_.emplace_back(Wanted{false, parameter, key, at::Tensor()});
    if (!item->is_tensor || item->sizes.empty()) {
      state.push_back({KeyPath(item->name), Value()});
    } else if (item->sizes == sizes) {
      wanted.shard = at::empty(owner.shard.sizes(), item->dtype);
      state.push_back({KeyPath(item->name), ShardedTensorOf(owner, wanted.shard, rank_)});
    } else {
      return absl::InvalidArgumentError(absl::StrCat("the state ", key, " of ", owner.name, ": expected a number or a ",
                                                     "tensor ", Shape(sizes), ", found ", Shape(item->sizes)));
    }
  }
  return absl::OkStatus();
}

absl::Status OptimizerLoader::Plan(absl::string_view directory, const checkpoint::LoadOptions& options,
                                   ShardedStateDict& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::ShardedMetadata metadata,
                            checkpoint::ReadShardedMetadata(directory, options));
  Items items;
  for (const ShardedItem& item : metadata.items) items.emplace(item.name, &item);
  first_ = state.size();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(PlanGroups(items, state), directory));
  for (const WholeOptimizer::Group& group : whole_.groups) {
    for (const size_t member : group.members) {
      if (!parameters_[member].shard.defined()) continue;
      LOCKSTEP_RETURN_IF_ERROR(Annotate(PlanState(items, member, state), directory));
    }
  }
  return absl::OkStatus();
}

// `groups` are the checkpoint's.
absl::Status OptimizerLoader::CheckNames(const std::vector<Value>& groups, size_t group, size_t parameter) const {
  const std::string& name = parameters_[parameter].name;
  if (flat_ || Contains(*groups[group].Find("params"), name)) return absl::OkStatus();
  std::string found = "none";
  for (size_t g = 0; g < groups.size(); ++g) {
    if (Contains(*groups[g].Find("params"), name)) found = absl::StrCat("[", g, "]");
  }
  return absl::InvalidArgumentError(absl::StrCat(name, ": expected it in the checkpoint's param_groups[", group,
                                                 "], as in the optimizer, found ", found));
}

absl::Status OptimizerLoader::Load(const ShardedStateDict& state, torch::optim::Optimizer& optimizer) const {
  std::vector<Value> groups(whole_.groups.size(), Value::Dict());
  std::map<size_t, Value> states;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const Wanted& wanted = wanted_[i];
    const Value* value = std::get_if<Value>(&state[first_ + i].value);
    Value loaded = value ? *value : Value(wanted.shard);
    if (wanted.is_option) {
      groups[wanted.index].Set(wanted.key, std::move(loaded));
      continue;
    }
    states.try_emplace(wanted.index, Value::Dict()).first->second.Set(wanted.key, std::move(loaded));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto places, PlacesOf(optimizer, parameters_));
  Value by_name = Value::Dict(), param_groups = Value::List();
  for (size_t g = 0; g < places.size(); ++g) {
    Value names = Value::List();
    for (const size_t place : places[g]) {
      LOCKSTEP_RETURN_IF_ERROR(CheckNames(groups, g, place));
      names.Append(parameters_[place].name);
      if (states.count(place) != 0) by_name.Set(parameters_[place].name, states.at(place));
    }
    groups[g].Set("params", names);
  }
  for (Value& group : groups) param_groups.Append(std::move(group));
  const Value dict = Value::Dict({{"state", by_name}, {"param_groups", param_groups}});
  return checkpoint::LoadOptimizerStateDict(optimizer, dict, /*copy=*/false);
}

}  // namespace lockstep::fsdp::internal
