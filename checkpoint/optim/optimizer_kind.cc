#include "lockstep/checkpoint/optim/optimizer_kind.h"

#include <ATen/ops/scalar_tensor.h>
#include <c10/util/accumulate.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::optim {
namespace {

using torch::optim::Adagrad;
using torch::optim::AdagradOptions;
using torch::optim::AdagradParamState;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::LBFGS;
using torch::optim::LBFGSOptions;
using torch::optim::LBFGSParamState;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::RMSpropParamState;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

// None if the tensor is undefined.
Value Detached(const at::Tensor& tensor) { return tensor.defined() ? Value(tensor.detach()) : Value(); }

void Tensor(Fields& fields, const char* key, at::Tensor& field, at::IntArrayRef sizes, const StateOwner& owner) {
  fields.Field(key, Detached(field), [&](const Value& found) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(field, TensorFor(owner, found, sizes));
    return absl::OkStatus();
  });
}

// A tensor of the parameter's shape. A missing key is an undefined tensor, and an error if `required`.
void Tensor(Fields& fields, const char* key, at::Tensor& field, const StateOwner& owner, bool required = true) {
  const bool present = fields.reading() ? required || fields.Has(key) : field.defined();
  if (present) Tensor(fields, key, field, owner.parameter.sizes(), owner);
}

// `field` is a vector or a deque. An undefined tensor in it is None, which is an error unless `optional`.
template <typename Container>
void Tensors(Fields& fields, const char* key, Container& field, at::IntArrayRef sizes, const StateOwner& owner,
             bool optional = false) {
  Value written = Value::List();
  for (const at::Tensor& tensor : field) written.Append(Detached(tensor));
  fields.Field(key, written, [&](const Value& list) -> absl::Status {
    if (!list.is_list()) return absl::InvalidArgumentError(absl::StrCat("expected list, found ", list.type_name()));
    field.assign(list.size(), at::Tensor());
    for (size_t i = 0; i < list.size(); ++i) {
      if (optional && list.items()[i].is_none()) continue;
      auto tensor = TensorFor(owner, list.items()[i], sizes);
      LOCKSTEP_RETURN_IF_ERROR(Annotate(tensor.status(), KeyPath({i}).ToString()));
      field[i] = *std::move(tensor);
    }
    return absl::OkStatus();
  });
}

// Python counts steps in a float tensor; before 1.12 in an int.
void Step(Fields& fields, int64_t& step) {
  constexpr double kLargest = 1LL << 53;
  if (!fields.reading()) return fields.WriteOnly("step", at::scalar_tensor(static_cast<double>(step), at::kFloat));
  double number = 0;
  fields.Double("step", number);
  const bool counts = number >= 0 && number <= kLargest && number == std::floor(number);
  fields.Check(counts, absl::StrCat("[\"step\"]: expected a count of steps, found ", number));
  if (counts) step = static_cast<int64_t>(number);
}

// foreach, fused and capturable choose among implementations of the same update, so a group that has them set is one
// that C++ can continue.

void Describe(Fields& fields, SGDOptions& options) {
  fields.Double("lr", options.lr());
  fields.Double("momentum", options.momentum());
  fields.Double("dampening", options.dampening());
  fields.Double("weight_decay", options.weight_decay());
  fields.Bool("nesterov", options.nesterov());
  fields.AlwaysFalse("maximize", "torch::optim::SGD");
  fields.WriteOnly("foreach", Value());
  fields.AlwaysFalse("differentiable", "torch::optim::SGD");
  fields.WriteOnly("fused", Value());
}

void Describe(Fields& fields, SGDParamState& state, const SGDOptions&, const StateOwner& owner) {
  Tensor(fields, "momentum_buffer", state.momentum_buffer(), owner);
}

void Betas(Fields& fields, std::tuple<double, double>& betas) {
  double& first = std::get<0>(betas);
  double& second = std::get<1>(betas);
  fields.Field("betas", Value::Tuple({first, second}),
               [&](const Value& found) { return TwoNumbers(found, first, second); });
}

// Adam's and AdamW's options have the same fields.
template <typename Options>
void DescribeAdam(Fields& fields, Options& options, const char* owner) {
  fields.Double("lr", options.lr());
  Betas(fields, options.betas());
  fields.Double("eps", options.eps());
  fields.Double("weight_decay", options.weight_decay());
  fields.Bool("amsgrad", options.amsgrad());
  fields.AlwaysFalse("maximize", owner);
  fields.WriteOnly("foreach", Value());
  fields.WriteOnly("capturable", false);
  fields.AlwaysFalse("differentiable", owner);
  fields.WriteOnly("fused", Value());
}

// Python's Adam becomes AdamW when it loads this key as True. C++'s cannot.
void Describe(Fields& fields, AdamOptions& options) {
  DescribeAdam(fields, options, "torch::optim::Adam");
  fields.AlwaysFalse("decoupled_weight_decay", "torch::optim::Adam");
}

// Python's AdamW stays AdamW with every state.
void Describe(Fields& fields, AdamWOptions& options) {
  DescribeAdam(fields, options, "torch::optim::AdamW");
  fields.WriteOnly("decoupled_weight_decay", true);
}

template <typename State, typename Options>
void DescribeAdamState(Fields& fields, State& state, const Options& options, const StateOwner& owner) {
  Step(fields, state.step());
  Tensor(fields, "exp_avg", state.exp_avg(), owner);
  Tensor(fields, "exp_avg_sq", state.exp_avg_sq(), owner);
  Tensor(fields, "max_exp_avg_sq", state.max_exp_avg_sq(), owner, options.amsgrad());
}

void Describe(Fields& fields, AdamParamState& state, const AdamOptions& options, const StateOwner& owner) {
  DescribeAdamState(fields, state, options, owner);
}

void Describe(Fields& fields, AdamWParamState& state, const AdamWOptions& options, const StateOwner& owner) {
  DescribeAdamState(fields, state, options, owner);
}

void Describe(Fields& fields, AdagradOptions& options) {
  fields.Double("lr", options.lr());
  fields.Double("lr_decay", options.lr_decay());
  fields.Double("eps", options.eps());
  fields.Double("weight_decay", options.weight_decay());
  fields.Double("initial_accumulator_value", options.initial_accumulator_value());
  fields.WriteOnly("foreach", Value());
  fields.AlwaysFalse("maximize", "torch::optim::Adagrad");
  fields.AlwaysFalse("differentiable", "torch::optim::Adagrad");
  fields.WriteOnly("fused", Value());
}

void Describe(Fields& fields, AdagradParamState& state, const AdagradOptions&, const StateOwner& owner) {
  Step(fields, state.step());
  Tensor(fields, "sum", state.sum(), owner);
}

void Describe(Fields& fields, RMSpropOptions& options) {
  fields.Double("lr", options.lr());
  fields.Double("momentum", options.momentum());
  fields.Double("alpha", options.alpha());
  fields.Double("eps", options.eps());
  fields.Bool("centered", options.centered());
  fields.Double("weight_decay", options.weight_decay());
  fields.WriteOnly("capturable", false);
  fields.WriteOnly("foreach", Value());
  fields.AlwaysFalse("maximize", "torch::optim::RMSprop");
  fields.AlwaysFalse("differentiable", "torch::optim::RMSprop");
}

void Describe(Fields& fields, RMSpropParamState& state, const RMSpropOptions& options, const StateOwner& owner) {
  Step(fields, state.step());
  Tensor(fields, "square_avg", state.square_avg(), owner);
  Tensor(fields, "momentum_buffer", state.momentum_buffer(), owner, options.momentum() > 0);
  Tensor(fields, "grad_avg", state.grad_avg(), owner, options.centered());
}

// Python's constructor always sets a number, as C++'s does for the first group's default.
void MaxEval(Fields& fields, LBFGSOptions& options) {
  int64_t max_eval = options.max_eval().value_or(options.max_iter() * 5 / 4);
  fields.Int("max_eval", max_eval);
  options.max_eval(max_eval);
}

void LineSearch(Fields& fields, LBFGSOptions& options) {
  const auto& current = options.line_search_fn();
  fields.Field("line_search_fn", current.has_value() ? Value(*current) : Value(), [&](const Value& found) {
    const bool wolfe = found.is_string() && found.string_value() == "strong_wolfe";
    if (!wolfe && !found.is_none())
      return absl::InvalidArgumentError(absl::StrCat("expected None or \"strong_wolfe\", found ", found.type_name()));
    options.line_search_fn(wolfe ? std::optional<std::string>(found.string_value()) : std::nullopt);
    return absl::OkStatus();
  });
}

void Describe(Fields& fields, LBFGSOptions& options) {
  fields.Double("lr", options.lr());
  fields.Int("max_iter", options.max_iter());
  MaxEval(fields, options);
  fields.Double("tolerance_grad", options.tolerance_grad());
  fields.Double("tolerance_change", options.tolerance_change());
  fields.Int("history_size", options.history_size());
  LineSearch(fields, options);
  if (fields.reading()) fields.AlwaysFalse("maximize", "torch::optim::LBFGS");  // PyTorch 2.11 does not write it
}

// The int 1 until there is a curvature to compute it from.
void HessianDiagonal(Fields& fields, at::Tensor& field, const StateOwner& owner) {
  const bool is_int = field.defined() && !field.is_floating_point();
  fields.Field("H_diag", is_int ? Value(1) : Detached(field), [&](const Value& found) -> absl::Status {
    if (found.is_int()) {
      field = at::scalar_tensor(found.int_value(), at::kLong);
      return absl::OkStatus();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(field, TensorFor(owner, found, {}));
    return absl::OkStatus();
  });
}

// `al` is scratch space of history_size items, made in the second iteration.
void Alphas(Fields& fields, LBFGSParamState& state, int64_t history_size, const StateOwner& owner) {
  if (fields.reading() ? !fields.Has("al") : !state.al().has_value()) return;
  std::vector<at::Tensor> al = state.al().value_or(std::vector<at::Tensor>());
  Tensors(fields, "al", al, {}, owner, /*optional=*/true);
  fields.Check(al.size() == history_size,
               absl::StrCat("[\"al\"]: expected history_size, ", history_size, ", items, found ", al.size()));
  state.al(std::move(al));
}

void History(Fields& fields, LBFGSParamState& state, int64_t history_size, at::IntArrayRef sizes,
             const StateOwner& owner) {
  Tensors(fields, "old_dirs", state.old_dirs(), sizes, owner);
  Tensors(fields, "old_stps", state.old_stps(), sizes, owner);
  Tensors(fields, "ro", state.ro(), {}, owner);
  const size_t count = state.old_dirs().size();
  fields.Check(count == state.old_stps().size() && count == state.ro().size() && count <= history_size,
               absl::StrCat("expected as many old_dirs, old_stps and ro, at most history_size, ", history_size,
                            ", found ", count, ", ", state.old_stps().size(), " and ", state.ro().size()));
}

// One state for all parameters, kept with the first. Before the first iteration it has counters only.
void Describe(Fields& fields, LBFGSParamState& state, const LBFGSOptions& options, const StateOwner& owner) {
  int64_t numel = 0;
  for (const at::Tensor& parameter : owner.group) numel += (parameter.is_complex() ? 2 : 1) * parameter.numel();
  fields.Int("func_evals", state.func_evals());
  fields.Int("n_iter", state.n_iter());
  if (state.n_iter() == 0) return;
  Alphas(fields, state, options.history_size(), owner);
  Tensor(fields, "d", state.d(), {numel}, owner);
  fields.Double("t", state.t());
  History(fields, state, options.history_size(), {numel}, owner);
  HessianDiagonal(fields, state.H_diag(), owner);
  Tensor(fields, "prev_flat_grad", state.prev_flat_grad(), {numel}, owner);
  fields.Double("prev_loss", state.prev_loss());
}

template <typename Kind, typename Options, typename State>
constexpr OptimizerKind MakeKind(const char* name, bool state_from_the_start = false) {
  return {name,
          state_from_the_start,
          [](const Optimizer& optimizer) { return dynamic_cast<const Kind*>(&optimizer) != nullptr; },
          [](Fields& fields, OptimizerOptions& options) { Describe(fields, static_cast<Options&>(options)); },
          [](OptimizerOptions& to, const OptimizerOptions& from) {
            static_cast<Options&>(to) = static_cast<const Options&>(from);
          },
          [](const StateOwner&) -> std::unique_ptr<OptimizerParamState> { return std::make_unique<State>(); },
          [](Fields& fields, OptimizerParamState& state, const StateOwner& owner) {
            Describe(fields, static_cast<State&>(state), static_cast<const Options&>(owner.options), owner);
          }};
}

constexpr OptimizerKind kKinds[] = {
    MakeKind<SGD, SGDOptions, SGDParamState>("torch::optim::SGD"),
    MakeKind<Adam, AdamOptions, AdamParamState>("torch::optim::Adam"),
    MakeKind<AdamW, AdamWOptions, AdamWParamState>("torch::optim::AdamW"),
    MakeKind<Adagrad, AdagradOptions, AdagradParamState>("torch::optim::Adagrad", /*state_from_the_start=*/true),
    MakeKind<RMSprop, RMSpropOptions, RMSpropParamState>("torch::optim::RMSprop"),
    MakeKind<LBFGS, LBFGSOptions, LBFGSParamState>("torch::optim::LBFGS"),
};

}  // namespace

absl::StatusOr<at::Tensor> TensorFor(const StateOwner& owner, const Value& value, at::IntArrayRef sizes) {
  if (!value.is_tensor()) return absl::InvalidArgumentError(absl::StrCat("expected Tensor, found ", value.type_name()));
  // The shard of a parameter without dimensions has one.
  const bool one = value.tensor().numel() == 1 && c10::multiply_integers(sizes) == 1;
  if (value.tensor().sizes() != sizes && !one) {
    return absl::InvalidArgumentError(absl::StrCat("expected shape [", absl::StrJoin(sizes, ", "), "], found [",
                                                   absl::StrJoin(value.tensor().sizes(), ", "), "]"));
  }
  // As in Python, the state of a complex parameter keeps its dtype, which may be real.
  const at::Tensor& parameter = owner.parameter;
  const at::ScalarType dtype = (parameter.is_complex() ? value.tensor() : parameter).scalar_type();
  return TorchStatusOr("copy", [&] {
    const at::Tensor found = one ? value.tensor().reshape(sizes) : value.tensor();
    return found.detach().to(parameter.options().dtype(dtype).requires_grad(false), /*non_blocking=*/false, owner.copy);
  });
}

std::optional<OptimizerKind> FindOptimizerKind(const Optimizer& optimizer) {
  for (const OptimizerKind& kind : kKinds) {
    if (kind.is(optimizer)) return kind;
  }
  return LockstepOptimizerKind(optimizer);
}

std::string OptimizerKindNames() {
  const auto append = [](std::string* out, const OptimizerKind& kind) { absl::StrAppend(out, kind.name); };
  return absl::StrCat(absl::StrJoin(kKinds, ", ", append), ", lockstep::optim::Optimizer");
}

}  // namespace lockstep::checkpoint::optim
