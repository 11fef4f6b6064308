#include <c10/core/DefaultDtype.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer_kind.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::checkpoint::optim {
namespace {

using lockstep::optim::Number;
using lockstep::optim::Options;
using lockstep::optim::State;

// Missing flags are false, as Python's optimizers take those of older versions.
class OptionFields : public lockstep::optim::OptionVisitor {
 public:
  explicit OptionFields(Fields& fields) : fields_(fields) {}

  void Visit(const char* key, Number& value) override {
    const Value written = value.is_tensor() ? Value(value.tensor().detach()) : Value(double{value});
    fields_.Field(key, written, [&](const Value& found) -> absl::Status {
      if (found.is_tensor()) return TorchStatus("a number", [&] { value = Number(found.tensor().detach().clone()); });
      LOCKSTEP_ASSIGN_OR_RETURN(value, GetNumber(found, {}));
      return absl::OkStatus();
    });
  }
  void Visit(const char* key, double& value) override { fields_.Double(key, value); }
  void Visit(const char* key, int64_t& value) override { fields_.Int(key, value); }
  void Visit(const char* key, bool& value) override {
    if (fields_.reading() && !fields_.Has(key)) {
      value = false;
    } else {
      fields_.Bool(key, value);
    }
  }
  void Visit(const char* key, std::optional<bool>& value) override {
    if (!fields_.reading() && !value.has_value()) return fields_.WriteOnly(key, Value());
    bool flag = value.value_or(false);
    Visit(key, flag);
    value = fields_.reading() && !fields_.Has(key) ? std::nullopt : std::optional<bool>(flag);
  }
  void Visit(const char* key, std::tuple<double, double>& value) override {
    auto& [first, second] = value;
    fields_.Field(key, Value::Tuple({first, second}), [&, &first = first, &second = second](const Value& found) {
      return TwoNumbers(found, first, second);
    });
  }
  void Visit(const char* key, std::tuple<double, double, double>& value) override {
    auto& [first, second, third] = value;
    fields_.Field(key, Value::Tuple({first, second, third}),
                  [&, &first = first, &second = second, &third = third](const Value& found) -> absl::Status {
                    LOCKSTEP_ASSIGN_OR_RETURN(first, GetDouble(found, {0}));
                    LOCKSTEP_ASSIGN_OR_RETURN(second, GetDouble(found, {1}));
                    LOCKSTEP_ASSIGN_OR_RETURN(third, GetDouble(found, {2}));
                    return absl::OkStatus();
                  });
  }
  void Visit(const char* key, std::tuple<std::optional<double>, double>& value) override {
    auto& [first, second] = value;
    fields_.Field(key, Value::Tuple({first ? Value(*first) : Value(), second}),
                  [&, &first = first, &second = second](const Value& found) -> absl::Status {
                    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> both, GetItems(found, {}));
                    first.reset();
                    if (!both.empty() && !both[0].is_none()) {
                      LOCKSTEP_ASSIGN_OR_RETURN(first, GetDouble(found, {0}));
                    }
                    LOCKSTEP_ASSIGN_OR_RETURN(second, GetDouble(found, {1}));
                    return absl::OkStatus();
                  });
  }
  void Visit(const char* key, std::optional<std::string>& value) override {
    fields_.Field(key, value ? Value(*value) : Value(), [&](const Value& found) -> absl::Status {
      value.reset();
      if (found.is_none()) return absl::OkStatus();
      LOCKSTEP_ASSIGN_OR_RETURN(value, GetString(found, {}));
      return absl::OkStatus();
    });
  }
  void Constant(const char* key, bool value) override {
    if (value) return fields_.WriteOnly(key, true);
    fields_.AlwaysFalse(key, "lockstep::optim");
  }

 private:
  Fields& fields_;
};

// Python moves a count only if the step stays on the device. `is_int`: it is an int in Python.
absl::StatusOr<at::Tensor> CountFor(const StateOwner& owner, const Value& found, bool is_int) {
  const auto& options = static_cast<const Options&>(owner.options);
  LOCKSTEP_ASSIGN_OR_RETURN(const double count, GetNumber(found, {}));
  if (count < 0 || count != std::floor(count) || count > (1LL << 53))
    return absl::InvalidArgumentError(absl::StrCat("expected a count of steps, found ", count));
  return TorchStatusOr("a count of steps", [&] {
    if (options.use_fused().value_or(false) || options.use_capturable())
      return at::full({}, count, at::TensorOptions(at::kFloat).device(owner.parameter.device()));
    if (is_int) return at::full({}, count, at::kLong);
    const auto dtype = found.is_tensor() ? found.tensor().scalar_type() : c10::get_default_dtype_as_scalartype();
    return at::full({}, count, dtype);
  });
}

// `state` is a new one: what is defined in it must be in a dict that is read.
void DescribeState(Fields& fields, State& state, const StateOwner& owner) {
  const auto& keys = dynamic_cast<const lockstep::optim::Optimizer&>(owner.optimizer).state_keys();
  for (size_t i = 0; i < keys.size(); ++i) {
    at::Tensor& tensor = state.tensors[i];
    if (!tensor.defined() && !(fields.reading() && fields.Has(keys[i]))) continue;
    const std::vector<int64_t> sizes = (tensor.defined() ? tensor : owner.parameter).sizes().vec();
    const bool is_int = tensor.defined() && tensor.scalar_type() == at::kLong;
    const Value written = is_int ? Value(tensor.item<int64_t>()) : tensor.defined() ? Value(tensor.detach()) : Value();
    fields.Field(keys[i], written, [&](const Value& found) -> absl::Status {
      const bool counts = absl::string_view(keys[i]) == "step";
      LOCKSTEP_ASSIGN_OR_RETURN(tensor, counts ? CountFor(owner, found, is_int) : TensorFor(owner, found, sizes));
      return absl::OkStatus();
    });
  }
}

}  // namespace

std::optional<OptimizerKind> LockstepOptimizerKind(const torch::optim::Optimizer& optimizer) {
  const auto* ours = dynamic_cast<const lockstep::optim::Optimizer*>(&optimizer);
  if (!ours) return std::nullopt;
  return OptimizerKind{ours->name(),
                       ours->state_from_the_start(),
                       nullptr,
                       [](Fields& fields, torch::optim::OptimizerOptions& options) {
                         OptionFields visitor(fields);
                         static_cast<Options&>(options).Visit(visitor);
                       },
                       [](torch::optim::OptimizerOptions& to, const torch::optim::OptimizerOptions& from) {
                         static_cast<Options&>(to).Assign(static_cast<const Options&>(from));
                       },
                       [](const StateOwner& owner) -> std::unique_ptr<torch::optim::OptimizerParamState> {
                         return dynamic_cast<const lockstep::optim::Optimizer&>(owner.optimizer)
                             .NewState(owner.parameter, static_cast<const Options&>(owner.options));
                       },
                       [](Fields& fields, torch::optim::OptimizerParamState& state, const StateOwner& owner) {
                         DescribeState(fields, static_cast<State&>(state), owner);
                       }};
}

}  // namespace lockstep::checkpoint::optim
