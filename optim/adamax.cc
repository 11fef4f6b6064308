#include "lockstep/optim/adamax.h"

#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace lockstep::optim {

using internal::kParameter;

void AdamaxOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("betas", betas());
  visitor.Visit("eps", eps());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("maximize", maximize());
  visitor.Constant("differentiable", false);
  visitor.Visit("capturable", capturable());
}

void AdamaxOptions::Check() const { CheckAdamFamily(lr(), betas(), eps(), weight_decay()); }

const std::vector<const char*>& Adamax::state_keys() const {
  static const std::vector<const char*> keys = {"step", "exp_avg", "exp_inf"};
  return keys;
}

void Adamax::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  for (int i = 1; i < 3; ++i) state.tensors[i] = at::zeros_like(parameter);
}

void Adamax::Write(const Options& options, const State& state, double step, bool foreach,
                   internal::Program& program) const {
  const auto& o = static_cast<const AdamaxOptions&>(options);
  const auto [beta1, beta2] = o.betas();
  constexpr internal::Register kAverage = internal::kState + 1, kNorm = kAverage + 1;
  const internal::Register scratch = program.Temporary();
  const internal::Register gradient = program.Gradient(scratch, o.maximize(), o.weight_decay());
  program.AsReal();
  program.Lerp(kAverage, kAverage, gradient, 1 - beta1);
  program.Mul(kNorm, kNorm, beta2);
  program.Abs(scratch, gradient);
  program.AddScalar(scratch, scratch, o.eps());
  program.Maximum(kNorm, kNorm, scratch);
  const Number lr = foreach ? Number(double{o.lr()}) : o.lr();
  program.Addcdiv(kParameter, kParameter, kAverage, kNorm, -lr.DividedBy(1 - std::pow(beta1, step)));
}

}  // namespace lockstep::optim
