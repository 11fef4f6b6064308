#include "lockstep/fsdp/internal/full_optimizer_loader.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/fsdp/internal/sharded_parameters.h"
#include "lockstep/fsdp/internal/whole_optimizer.h"

namespace lockstep::fsdp::internal {
namespace {

using checkpoint::Value;

std::string Shape(const at::Tensor& tensor) { return absl::StrCat("[", absl::StrJoin(tensor.sizes(), ", "), "]"); }

class Loader {
 public:
  Loader(const checkpoint::DeferredTensors& deferred, const ShardedModule& sharded,
         const std::vector<ShardedParameter>& parameters, const WholeOptimizer& whole)
      : deferred_(deferred), sharded_(sharded), parameters_(parameters), whole_(whole) {}

  absl::Status Load(const Value& state_dict, torch::optim::Optimizer& optimizer) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value states, checkpoint::GetDict(state_dict, "state"));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> groups, checkpoint::GetItems(state_dict, "param_groups"));
    if (groups.size() != whole_.groups.size()) {
      return absl::InvalidArgumentError(absl::StrCat("expected ", whole_.groups.size(),
                                                     " param_groups, as the optimizer has, found ", groups.size()));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const auto places, PlacesOf(optimizer, parameters_));
    Value own_states = Value::Dict(), own_groups = Value::List();
    for (size_t g = 0; g < groups.size(); ++g) {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto keys, KeysOf(groups[g], g));
      Value names = Value::List();
      for (const size_t place : places[g]) {
        names.Append(parameters_[place].name);
        const Value* state = states.Find(keys.at(place));
        if (!state || !state->is_dict()) continue;
        LOCKSTEP_ASSIGN_OR_RETURN(Value own, OwnState(parameters_[place], *state));
        own_states.Set(parameters_[place].name, std::move(own));
      }
      Value group = groups[g];
      group.Set("params", std::move(names));
      own_groups.Append(std::move(group));
    }
    const Value own = Value::Dict({{"state", own_states}, {"param_groups", own_groups}});
    return checkpoint::LoadOptimizerStateDict(optimizer, own, /*copy=*/false);
  }

 private:
  // The keys in "state" of the group's parameters.
  absl::StatusOr<std::map<size_t, Value>> KeysOf(const Value& group, size_t g) const {
    const std::string where = absl::StrCat("param_groups[", g, "][\"params\"]");
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> found, checkpoint::GetItems(group, "params"));
    const std::vector<size_t>& members = whole_.groups[g].members;
    std::map<size_t, Value> keys;
    if (std::any_of(found.begin(), found.end(), [](const Value& key) { return key.is_string(); })) {
      for (const size_t member : members) {
        const Value name = parameters_[member].name;
        if (std::none_of(found.begin(), found.end(), [&](const Value& key) { return Identical(key, name); })) {
          return absl::InvalidArgumentError(absl::StrCat(where, ": expected ", name.string_value(), ", found none"));
        }
        keys.emplace(member, name);
      }
      return keys;
    }
    const bool all = whole_.groups.size() == 1 && found.size() == sharded_.parameters().size();
    if (found.size() != members.size() && !all) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": expected ", members.size(), " parameters, found ", found.size()));
    }
    for (size_t i = 0; i < members.size(); ++i) {
      keys.emplace(members[i], found[found.size() == members.size() ? i : PlaceOf(parameters_[members[i]])]);
    }
    return keys;
  }

  // The place among all parameters, frozen ones too.
  size_t PlaceOf(const ShardedParameter& parameter) const {
    const std::vector<at::Tensor>& all = sharded_.parameters();
    return std::find_if(all.begin(), all.end(),
                        [&](const at::Tensor& tensor) { return tensor.is_same(parameter.tensor); }) -
           all.begin();
  }

  // Copies, so that the optimizer may keep them.
  absl::StatusOr<Value> OwnState(const ShardedParameter& parameter, const Value& state) const {
    const ShardedParameter::Part& part = *parameter.PartOf(sharded_.group()->rank());
    Value own = Value::Dict();
    for (const auto& [key, value] : state.entries()) {
      if (!value.is_tensor()) {
        own.Set(key, value);
        continue;
      }
      const at::Tensor& found = value.tensor();
      if (found.dim() > 0 && found.sizes() != parameter.tensor.sizes()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the state ", key.is_string() ? key.string_value() : std::string(key.type_name()), " of ", parameter.name,
            ": expected a number or a tensor ", Shape(parameter.tensor), ", found ", Shape(found)));
      }
      const absl::StatusOr<at::Tensor> whole = deferred_.Get(found);
      LOCKSTEP_RETURN_IF_ERROR(Annotate(whole.status(), parameter.name));
      own.Set(key, found.dim() == 0 ? whole->clone()
                                    : InMemoryOrder(*whole, parameter.tensor)
                                          .narrow(0, part.begin, part.end - part.begin)
                                          .clone()
                                          .view(parameter.shard.sizes()));
    }
    return own;
  }

  const checkpoint::DeferredTensors& deferred_;
  const ShardedModule& sharded_;
  const std::vector<ShardedParameter>& parameters_;
  const WholeOptimizer& whole_;
};

}  // namespace

absl::Status LoadFullOptimizer(const Value& state_dict, const checkpoint::DeferredTensors& deferred,
                               const ShardedModule& sharded, const char* call, torch::optim::Optimizer& optimizer) {
  const std::vector<ShardedParameter> parameters = ShardedParametersOf(sharded);
  LOCKSTEP_ASSIGN_OR_RETURN(const WholeOptimizer whole,
                            GatherOptimizer(optimizer, parameters, sharded.group(), call, Exchange::kGroups));
  absl::Status own;
  own.Update(TorchStatus("", [&] { own = Loader(deferred, sharded, parameters, whole).Load(state_dict, optimizer); }));
  return comm::Agree(sharded.group(), call, own);
}

}  // namespace lockstep::fsdp::internal
