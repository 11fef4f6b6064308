#include "lockstep/checkpoint/optimizer.h"

#include <c10/core/GradMode.h>
#include <c10/util/Type.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

absl::Status CheckType(const Optimizer& optimizer) {
  if (dynamic_cast<const SGD*>(&optimizer) != nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the state of a ", c10::demangle(typeid(optimizer).name()),
                                               " is not supported; only torch::optim::SGD's"));
}

// Python numbers a parameter where it first occurs.
class Numbering {
 public:
  explicit Numbering(const Optimizer& optimizer) {
    for (const OptimizerParamGroup& group : optimizer.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        if (numbers_.emplace(parameter.unsafeGetTensorImpl(), parameters_.size()).second)
          parameters_.push_back(parameter);
      }
    }
  }

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  int64_t NumberOf(const at::Tensor& parameter) const { return numbers_.at(parameter.unsafeGetTensorImpl()); }

 private:
  std::vector<at::Tensor> parameters_;
  absl::flat_hash_map<const c10::TensorImpl*, int64_t> numbers_;
};

// The keys and their order are those of Python 2.11's SGD.
Value GroupToValue(const OptimizerParamGroup& group, const Numbering& numbering) {
  const auto& options = static_cast<const SGDOptions&>(group.options());
  Value params = Value::List();
  for (const at::Tensor& parameter : group.params()) params.Append(numbering.NumberOf(parameter));
  return Value::Dict({{"lr", options.lr()},
                      {"momentum", options.momentum()},
                      {"dampening", options.dampening()},
                      {"weight_decay", options.weight_decay()},
                      {"nesterov", options.nesterov()},
                      {"maximize", false},
                      {"foreach", Value()},
                      {"differentiable", false},
                      {"fused", Value()},
                      {"params", params}});
}

// The momentum buffer of `parameter`; undefined where it has none.
at::Tensor BufferOf(const Optimizer& optimizer, const at::Tensor& parameter) {
  const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (state == optimizer.state().end()) return {};
  return static_cast<const SGDParamState&>(*state->second).momentum_buffer();
}

absl::Status RefuseIfTrue(const Value& group, const char* key) {
  const Value* found = group.Find(key);
  if (found == nullptr || !found->is_bool() || !found->bool_value()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("[\"", key, "\"]: True, which torch::optim::SGD does not have"));
}

absl::StatusOr<SGDOptions> ReadOptions(const Value& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(const double lr, GetDouble(group, "lr"));
  LOCKSTEP_ASSIGN_OR_RETURN(const double momentum, GetDouble(group, "momentum"));
  LOCKSTEP_ASSIGN_OR_RETURN(const double dampening, GetDouble(group, "dampening"));
  LOCKSTEP_ASSIGN_OR_RETURN(const double weight_decay, GetDouble(group, "weight_decay"));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool nesterov, GetBool(group, "nesterov"));
  LOCKSTEP_RETURN_IF_ERROR(RefuseIfTrue(group, "maximize"));
  LOCKSTEP_RETURN_IF_ERROR(RefuseIfTrue(group, "differentiable"));
  return SGDOptions(lr).momentum(momentum).dampening(dampening).weight_decay(weight_decay).nesterov(nesterov);
}

// Everything that loading sets, complete and checked before any of it is.
struct Plan {
  std::vector<SGDOptions> options;
  // By parameter; those without a buffer are absent.
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers;
};

absl::StatusOr<at::Tensor> ReadBuffer(const Value& state, const at::Tensor& parameter) {
  if (!state.is_dict()) return absl::InvalidArgumentError(absl::StrCat("expected dict, found ", state.type_name()));
  const Value* buffer = state.Find("momentum_buffer");
  if (buffer == nullptr || buffer->is_none()) return at::Tensor();
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor given, GetTensor(state, "momentum_buffer"));
  if (given.sizes() != parameter.sizes()) {
    return absl::InvalidArgumentError(absl::StrCat("[\"momentum_buffer\"]: its shape is [",
                                                   absl::StrJoin(given.sizes(), ", "), "], the parameter's [",
                                                   absl::StrJoin(parameter.sizes(), ", "), "]"));
  }
  return TorchStatusOr("[\"momentum_buffer\"]", [&] {
    return given.detach().to(parameter.options().requires_grad(false), /*non_blocking=*/false, /*copy=*/true);
  });
}

absl::Status PlanParameter(const Value& states, const Value& number, const at::Tensor& parameter, Plan& plan) {
  const Value* state = states.Find(number);
  if (state == nullptr) return absl::OkStatus();
  auto buffer = ReadBuffer(*state, parameter);
  LOCKSTEP_RETURN_IF_ERROR(Annotate(buffer.status(), KeyPath({"state", number}).ToString()));
  if (buffer->defined()) plan.buffers.emplace_back(parameter, *std::move(buffer));
  return absl::OkStatus();
}

absl::Status PlanGroup(const Value& group, const Value& states, const OptimizerParamGroup& target, Plan& plan) {
  LOCKSTEP_ASSIGN_OR_RETURN(const SGDOptions options, ReadOptions(group));
  plan.options.push_back(options);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> numbers, GetItems(group, "params"));
  if (numbers.size() != target.params().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("[\"params\"]: ", numbers.size(), " parameters, the optimizer has ", target.params().size()));
  }
  for (size_t i = 0; i < numbers.size(); ++i)
    LOCKSTEP_RETURN_IF_ERROR(PlanParameter(states, numbers[i], target.params()[i], plan));
  return absl::OkStatus();
}

absl::StatusOr<Plan> MakePlan(const Optimizer& optimizer, const Value& state_dict) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value states, GetDict(state_dict, "state"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> groups, GetItems(state_dict, "param_groups"));
  if (groups.size() != optimizer.param_groups().size()) {
    return absl::InvalidArgumentError(absl::StrCat("[\"param_groups\"]: ", groups.size(), " groups, the optimizer has ",
                                                   optimizer.param_groups().size()));
  }
  Plan plan;
  for (size_t i = 0; i < groups.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(PlanGroup(groups[i], states, optimizer.param_groups()[i], plan),
                                      KeyPath({"param_groups", i}).ToString()));
  }
  return plan;
}

void Apply(Plan plan, Optimizer& optimizer) {
  for (size_t i = 0; i < plan.options.size(); ++i) {
    static_cast<SGDOptions&>(optimizer.param_groups()[i].options()) = plan.options[i];
  }
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) optimizer.state().erase(parameter.unsafeGetTensorImpl());
  }
  for (auto& [parameter, buffer] : plan.buffers) {
    auto state = std::make_unique<SGDParamState>();
    state->momentum_buffer(std::move(buffer));
    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  }
}

}  // namespace

absl::StatusOr<Value> OptimizerStateDict(const Optimizer& optimizer) {
  LOCKSTEP_RETURN_IF_ERROR(CheckType(optimizer));
  const Numbering numbering(optimizer);
  Value states = Value::Dict();
  for (size_t i = 0; i < numbering.parameters().size(); ++i) {
    const at::Tensor buffer = BufferOf(optimizer, numbering.parameters()[i]);
    if (buffer.defined()) states.Set(i, Value::Dict({{"momentum_buffer", buffer.detach()}}));
  }
  Value groups = Value::List();
  for (const OptimizerParamGroup& group : optimizer.param_groups()) groups.Append(GroupToValue(group, numbering));
  return Value::Dict({{"state", states}, {"param_groups", groups}});
}

absl::Status LoadOptimizerStateDict(Optimizer& optimizer, const Value& state_dict) {
  LOCKSTEP_RETURN_IF_ERROR(CheckType(optimizer));
  LOCKSTEP_ASSIGN_OR_RETURN(Plan plan, MakePlan(optimizer, state_dict));
  Apply(std::move(plan), optimizer);
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint
