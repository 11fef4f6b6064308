#include "lockstep/ddp/hooks/power_sgd_value.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::ddp::hooks {
namespace {

using checkpoint::Value;
using Tensors = std::map<std::string, at::Tensor>;

Value OfTensors(const Tensors& tensors) {
  Value dict = Value::Dict();
  for (const auto& [name, tensor] : tensors) dict.Set(name, tensor);
  return dict;
}

absl::StatusOr<Tensors> ToTensors(const Value& value, const char* key) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value dict, checkpoint::GetDict(value, key));
  Tensors tensors;
  for (const auto& [name, tensor] : dict.entries()) {
    if (!name.is_string() || !tensor.is_tensor())
      return absl::InvalidArgumentError(absl::StrCat(key, ": expected a dict of tensors by name"));
    tensors.emplace(name.string_value(), tensor.tensor());
  }
  return tensors;
}

}  // namespace

Value ToValue(const PowerSgdState& state) {
  return Value::Dict({{"iteration", state.iteration},
                      {"starts_drawn", state.starts_drawn},
                      {"errors", OfTensors(state.errors)},
                      {"qs", OfTensors(state.qs)},
                      {"starts", OfTensors(state.starts)}});
}

absl::StatusOr<PowerSgdState> ToPowerSgdState(const Value& value) {
  PowerSgdState state;
  LOCKSTEP_ASSIGN_OR_RETURN(state.iteration, checkpoint::GetInt(value, "iteration"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.starts_drawn, checkpoint::GetInt(value, "starts_drawn"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.errors, ToTensors(value, "errors"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.qs, ToTensors(value, "qs"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.starts, ToTensors(value, "starts"));
  if (state.iteration < 0 || state.starts_drawn < 0)
    return absl::InvalidArgumentError("iteration and starts_drawn: expected 0 or more");
  return state;
}

}  // namespace lockstep::ddp::hooks
