#include "lockstep/optim/radam.h"

#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace lockstep::optim {

using internal::kParameter;

void RAdamOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("betas", betas());
  visitor.Visit("eps", eps());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("maximize", maximize());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("capturable", capturable());
  visitor.Visit("decoupled_weight_decay", decoupled_weight_decay());
  visitor.Constant("differentiable", false);
}

void RAdamOptions::Check() const { CheckAdamFamily(lr(), betas(), eps(), weight_decay()); }

const std::vector<const char*>& RAdam::state_keys() const {
  static const std::vector<const char*> keys = {"step", "exp_avg", "exp_avg_sq"};
  return keys;
}

void RAdam::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  for (int i = 1; i < 3; ++i) state.tensors[i] = at::zeros_like(parameter);
}

void RAdam::Write(const Options& options, const State& state, double step, bool foreach,
                  internal::Program& program) const {
  const auto& o = static_cast<const RAdamOptions&>(options);
  const auto [beta1, beta2] = o.betas();
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
  constexpr internal::Register kAverage = internal::kState + 1, kSquares = kAverage + 1;
  const internal::Register scratch = program.Temporary(), root = program.Temporary();
  program.AsReal();
  const internal::Register gradient =
      program.Gradient(scratch, o.maximize(), o.decoupled_weight_decay() ? 0 : o.weight_decay());
  if (o.decoupled_weight_decay() && o.weight_decay() != 0)
    program.Mul(kParameter, kParameter, o.lr().Times(o.weight_decay()).SubtractedFrom(1));
  program.Lerp(kAverage, kAverage, gradient, 1 - beta1);
  program.Mul(kSquares, kSquares, beta2);
  program.Addcmul(kSquares, kSquares, gradient, gradient, 1 - beta2);

  const double rho_inf = 2 / (1 - beta2) - 1, rho = rho_inf - 2 * step * std::pow(beta2, step) / correction2;
  const bool adapts = rho > 5;
  const double rectification =
      adapts ? std::pow((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho), 0.5) : 0;
  if (adapts || foreach) {
    program.Sqrt(root, kSquares);
    program.AddScalar(root, root, o.eps());
  }
  if (foreach) {
    // Without the adaptive rate, the divisor is -0, and its reciprocal vanishes.
    program.Div(root, root, -o.lr().Times(rectification).DividedBy(correction1).Times(std::pow(correction2, 0.5)));
    program.Reciprocal(root, root);
    program.AddScalar(root, root, adapts ? -0.0 : -o.lr().DividedBy(correction1));
    program.Addcmul(kParameter, kParameter, kAverage, root, 1);
    return;
  }
  program.Div(scratch, kAverage, correction1);
  program.Mul(scratch, scratch, o.lr());
  if (adapts) {
    program.Reciprocal(root, root);
    program.Mul(root, root, std::pow(correction2, 0.5));
    program.Mul(scratch, scratch, root);
    program.Mul(scratch, scratch, rectification);
  }
  program.Add(kParameter, kParameter, scratch, -1);
}

}  // namespace lockstep::optim
