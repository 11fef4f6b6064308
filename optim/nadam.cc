#include "lockstep/optim/nadam.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace lockstep::optim {

using internal::kParameter;

void NAdamOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("betas", betas());
  visitor.Visit("eps", eps());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("momentum_decay", momentum_decay());
  visitor.Visit("decoupled_weight_decay", decoupled_weight_decay());
  visitor.Visit("maximize", maximize());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("capturable", capturable());
  visitor.Constant("differentiable", false);
}

void NAdamOptions::Check() const {
  CheckAdamFamily(lr(), betas(), eps(), weight_decay());
  TORCH_CHECK_VALUE(momentum_decay() >= 0, "Invalid momentum_decay value: ", momentum_decay());
}

const std::vector<const char*>& NAdam::state_keys() const {
  static const std::vector<const char*> keys = {"step", "mu_product", "exp_avg", "exp_avg_sq"};
  return keys;
}

void NAdam::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  state.tensors[1] = at::ones_like(state.tensors[0]);
  for (int i = 2; i < 4; ++i) state.tensors[i] = at::zeros_like(parameter);
}

void NAdam::Write(const Options& options, const State& state, double step, bool foreach,
                  internal::Program& program) const {
  const auto& o = static_cast<const NAdamOptions&>(options);
  const auto [beta1, beta2] = o.betas();
  const double correction = 1 - std::pow(beta2, step);
  constexpr internal::Register kAverage = internal::kState + 2, kSquares = kAverage + 1;
  const internal::Register scratch = program.Temporary(), root = program.Temporary();
  program.AsReal();
  const internal::Register gradient =
      program.Gradient(scratch, o.maximize(), o.decoupled_weight_decay() ? 0 : o.weight_decay());
  if (o.decoupled_weight_decay() && o.weight_decay() != 0)
    program.Mul(kParameter, kParameter, o.lr().Times(o.weight_decay()).SubtractedFrom(1));
  program.Lerp(kAverage, kAverage, gradient, 1 - beta1);
  program.Mul(kSquares, kSquares, beta2);
  program.Addcmul(kSquares, kSquares, gradient, gradient, 1 - beta2);
  if (foreach) {
    program.Sqrt(root, kSquares);
    program.Div(root, root, std::pow(correction, 0.5));
  } else {
    program.Div(root, kSquares, correction);
    program.Sqrt(root, root);
  }
  program.AddScalar(root, root, o.eps());
  const auto momentum = [&, beta1 = beta1](double at) {
    return beta1 * (1 - 0.5 * std::pow(0.96, at * o.momentum_decay()));
  };
  const Number lr = foreach ? Number(double{o.lr()}) : o.lr();
  const double mu = momentum(step), mu_next = momentum(step + 1);
  // In reduced precision, the product with a number rounds the number first.
  const at::Tensor& products = state.tensors[1];
  foreach
    ? products.mul_(mu) : products.mul_(at::native::wrapped_scalar_tensor(mu));
  const double product = products.item<double>();
  program.Addcdiv(kParameter, kParameter, gradient, root, -lr.Times(1 - mu).DividedBy(1 - product));
  program.Addcdiv(kParameter, kParameter, kAverage, root, -lr.Times(mu_next).DividedBy(1 - product * mu_next));
}

}  // namespace lockstep::optim
