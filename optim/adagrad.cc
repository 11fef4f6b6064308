#include "lockstep/optim/adagrad.h"

#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/complex.h>

namespace lockstep::optim {
namespace {

double RateAt(const AdagradOptions& options, double step) {
  return options.lr().DividedBy(1 + (step - 1) * options.lr_decay());
}

}  // namespace

void AdagradOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("lr_decay", lr_decay());
  visitor.Visit("eps", eps());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("initial_accumulator_value", initial_accumulator_value());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("maximize", maximize());
  visitor.Constant("differentiable", false);
  visitor.Visit("fused", fused());
}

void AdagradOptions::Check() const {
  TORCH_CHECK_VALUE(lr() >= 0.0, "Invalid learning rate: ", double{lr()});
  TORCH_CHECK_VALUE(lr_decay() >= 0, "Invalid lr_decay value: ", lr_decay());
  TORCH_CHECK_VALUE(weight_decay() >= 0, "Invalid weight_decay value: ", weight_decay());
  TORCH_CHECK_VALUE(initial_accumulator_value() >= 0,
                    "Invalid initial_accumulator_value value: ", initial_accumulator_value());
  TORCH_CHECK_VALUE(eps() >= 0, "Invalid epsilon value: ", eps());
  CheckModes();
}

Adagrad::Adagrad(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdagradOptions defaults)
    : OptimizerOf(groups, std::move(defaults)) {
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) StateOf(parameter, static_cast<const Options&>(group.options()));
  }
}

const std::vector<const char*>& Adagrad::state_keys() const {
  static const std::vector<const char*> keys = {"step", "sum"};
  return keys;
}

void Adagrad::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  const double value = static_cast<const AdagradOptions&>(options).initial_accumulator_value();
  const at::Scalar initial = parameter.is_complex() ? at::Scalar(c10::complex<double>(value, value)) : value;
  state.tensors[1] = at::full_like(parameter, initial, at::TensorOptions().requires_grad(false));
}

void Adagrad::Write(const Options& options, const State& state, double step, bool foreach,
                    internal::Program& program) const {
  const auto& o = static_cast<const AdagradOptions&>(options);
  constexpr internal::Register kSum = internal::kState + 1;
  const internal::Register scratch = program.Temporary(), root = program.Temporary();
  internal::Register gradient = program.Gradient(scratch, o.maximize(), o.weight_decay());
  program.AsReal();
  program.Addcmul(kSum, kSum, gradient, gradient, 1);
  program.Sqrt(root, kSum);
  program.AddScalar(root, root, o.eps());
  double rate = -RateAt(o, step);
  if (foreach) {
    program.Mul(scratch, gradient, rate);
    gradient = scratch;
    rate = 1;
  }
  program.Addcdiv(internal::kParameter, internal::kParameter, gradient, root, rate);
}

void Adagrad::Fused(const Options& options, Batch& batch) const {
  const auto& o = static_cast<const AdagradOptions&>(options);
  TORCH_CHECK(batch.parameters.front().is_cpu(),
              "`fused=True` requires all the params to be floating point Tensors of "
              "supported devices: ['cpu'] but ",
              batch.parameters.front().device().type());
  at::_fused_adagrad_(batch.parameters, batch.gradients, batch.states[1], batch.states[0], double{o.lr()}, o.lr_decay(),
                      o.weight_decay(), o.eps(), o.maximize(), batch.grad_scale, batch.found_inf);
}

void Adagrad::CheckSparse(const Options& options) const {
  TORCH_CHECK(!options.use_fused().value_or(false), "`fused` does not support sparse grad or complex param");
  TORCH_CHECK(static_cast<const AdagradOptions&>(options).weight_decay() == 0,
              "weight_decay option is not compatible with sparse gradients");
}

bool Adagrad::StepSparse(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                         State& state) const {
  const auto& o = static_cast<const AdagradOptions&>(options);
  const at::Tensor rows = (o.maximize() ? -gradient : gradient).coalesce();
  const auto of_rows = [&](const at::Tensor& values) {
    return at::sparse_coo_tensor(rows._indices(), values, rows.sizes());
  };
  const at::Tensor& sum = state.tensors[1];
  sum.add_(of_rows(rows._values().pow(2)));
  const at::Tensor root = sum.sparse_mask(rows)._values().sqrt_().add_(o.eps());
  parameter.add_(of_rows(rows._values() / root), -RateAt(o, step));
  return true;
}

}  // namespace lockstep::optim
