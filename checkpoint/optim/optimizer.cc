#include "lockstep/checkpoint/optim/optimizer.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/fields.h"
#include "lockstep/checkpoint/optim/optimizer_kind.h"

namespace lockstep::checkpoint {
namespace {

using optim::Fields;
using optim::OptimizerKind;
using optim::StateOwner;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::OptimizerParamState;

absl::StatusOr<OptimizerKind> KindOf(const Optimizer& optimizer) {
  if (const auto kind = optim::FindOptimizerKind(optimizer)) return *kind;
  return absl::UnimplementedError(absl::StrCat("the state of a ", c10::demangle(typeid(optimizer).name()),
                                               " is not supported; that of ", optim::OptimizerKindNames(), " is"));
}

// Python numbers a parameter where it first occurs.
class Numbering {
 public:
  int64_t NumberOf(const at::Tensor& parameter) {
    return numbers_.emplace(parameter.unsafeGetTensorImpl(), numbers_.size()).first->second;
  }

 private:
  absl::flat_hash_map<const c10::TensorImpl*, int64_t> numbers_;
};

Value GroupToValue(const OptimizerKind& kind, const OptimizerParamGroup& group, Numbering& numbering) {
  const std::unique_ptr<OptimizerOptions> options = group.options().clone();
  Fields writer;
  kind.describe_options(writer, *options);
  Value params = Value::List();
  for (const at::Tensor& parameter : group.params()) params.Append(numbering.NumberOf(parameter));
  writer.WriteOnly("params", params);
  return writer.dict();
}

Value StateToValue(const OptimizerKind& kind, const OptimizerParamState& state, const StateOwner& owner) {
  const std::unique_ptr<OptimizerParamState> copy = state.clone();
  Fields writer;
  kind.describe_state(writer, *copy, owner);
  return writer.dict();
}

// Everything that loading sets. It is complete and checked before anything is set.
struct Plan {
  std::vector<std::unique_ptr<OptimizerOptions>> options;
  // By parameter. Parameters without state are absent.
  std::vector<std::pair<at::Tensor, std::unique_ptr<OptimizerParamState>>> states;
};

// Python's SGD without momentum, before 2.0, left {"momentum_buffer": None}.
bool IsEmpty(const Value& state) {
  return state.is_dict() && std::all_of(state.entries().begin(), state.entries().end(),
                                        [](const Value::Entry& entry) { return entry.second.is_none(); });
}

absl::Status PlanParameter(const OptimizerKind& kind, const Value& states, const Value& number, const StateOwner& owner,
                           Plan& plan) {
  const std::string path = KeyPath({"state", number}).ToString();
  const Value* given = states.Find(number);
  if (!given || IsEmpty(*given)) {
    if (!kind.state_from_the_start) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path, ": no state, which a ", kind.name, " needs"));
  }
  if (!given->is_dict())
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected dict, found ", given->type_name()));
  Fields reader(*given);
  std::unique_ptr<OptimizerParamState> state = kind.new_state(owner);
  kind.describe_state(reader, *state, owner);
  LOCKSTEP_RETURN_IF_ERROR(Annotate(reader.status(), path));
  plan.states.emplace_back(owner.parameter, std::move(state));
  return absl::OkStatus();
}

absl::Status PlanGroup(const OptimizerKind& kind, const Optimizer& optimizer, const Value& group, const Value& states,
                       const OptimizerParamGroup& target, bool copy, Plan& plan) {
  std::unique_ptr<OptimizerOptions> options = target.options().clone();
  Fields reader(group);
  kind.describe_options(reader, *options);
  LOCKSTEP_RETURN_IF_ERROR(Annotate(reader.status(), kind.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> numbers, GetItems(group, "params"));
  if (numbers.size() != target.params().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("[\"params\"]: ", numbers.size(), " parameters, the optimizer has ", target.params().size()));
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const StateOwner owner{target.params()[i], target.params(), *options, optimizer, copy};
    LOCKSTEP_RETURN_IF_ERROR(PlanParameter(kind, states, numbers[i], owner, plan));
  }
  plan.options.push_back(std::move(options));
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const OptimizerKind& kind, const Optimizer& optimizer, const Value& state_dict,
                              bool copy) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value states, GetDict(state_dict, "state"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> groups, GetItems(state_dict, "param_groups"));
  if (groups.size() != optimizer.param_groups().size()) {
    return absl::InvalidArgumentError(absl::StrCat("[\"param_groups\"]: ", groups.size(), " groups, the optimizer has ",
                                                   optimizer.param_groups().size()));
  }
  Plan plan;
  for (size_t i = 0; i < groups.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        Annotate(PlanGroup(kind, optimizer, groups[i], states, optimizer.param_groups()[i], copy, plan),
                 KeyPath({"param_groups", i}).ToString()));
  }
  return plan;
}

void Apply(const OptimizerKind& kind, Plan plan, Optimizer& optimizer) {
  for (size_t i = 0; i < plan.options.size(); ++i)
    kind.assign_options(optimizer.param_groups()[i].options(), *plan.options[i]);
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) optimizer.state().erase(parameter.unsafeGetTensorImpl());
  }
  for (auto& [parameter, state] : plan.states) optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
}

}  // namespace

absl::StatusOr<Value> OptimizerStateDict(const Optimizer& optimizer) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OptimizerKind kind, KindOf(optimizer));
  Numbering numbering;
  Value states = Value::Dict();
  Value groups = Value::List();
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    groups.Append(GroupToValue(kind, group, numbering));
    for (const at::Tensor& parameter : group.params()) {
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state == optimizer.state().end()) continue;
      const StateOwner owner{parameter, group.params(), group.options(), optimizer};
      const Value value = StateToValue(kind, *state->second, owner);
      if (value.size() > 0) states.Set(numbering.NumberOf(parameter), value);
    }
  }
  return Value::Dict({{"state", states}, {"param_groups", groups}});
}

absl::Status LoadOptimizerStateDict(Optimizer& optimizer, const Value& state_dict, bool copy) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OptimizerKind kind, KindOf(optimizer));
  auto plan = MakePlan(kind, optimizer, state_dict, copy);
  if (!plan.ok()) return optim::InvalidIfMissing(plan.status());
  Apply(kind, *std::move(plan), optimizer);
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint
