#include "lockstep/optim/lamb.h"

#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "lockstep/optim/internal/norm.h"

namespace lockstep::optim {

using internal::Norm;

void LAMBOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("betas", betas());
  visitor.Visit("eps", eps());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("maximize", maximize());
}

void LAMBOptions::Check() const { CheckAdamFamily(lr(), betas(), eps(), weight_decay()); }

const std::vector<const char*>& LAMB::state_keys() const {
  static const std::vector<const char*> keys = {"step", "exp_avg", "exp_avg_sq"};
  return keys;
}

void LAMB::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  for (int i = 1; i < 3; ++i) state.tensors[i] = at::zeros_like(parameter);
}

bool LAMB::StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                     State& state) const {
  TORCH_CHECK(!parameter.is_complex(), "LAMB does not support complex parameters");
  const auto& o = static_cast<const LAMBOptions&>(options);
  const auto [beta1, beta2] = o.betas();
  const at::Tensor descent = o.maximize() ? -gradient : gradient;
  const at::Tensor &average = state.tensors[1], &squares = state.tensors[2];
  average.lerp_(descent, 1 - beta1);
  squares.lerp_(descent * descent, 1 - beta2);
  const at::Tensor root = squares.div(1 - std::pow(beta2, step)).sqrt_().add_(o.eps());
  const at::Tensor update = average.div(1 - std::pow(beta1, step)).div_(root).add_(parameter, o.weight_decay());
  const double length = Norm(parameter), update_length = Norm(update);
  const double ratio = length > 0 && update_length > 0 ? length / update_length : 1;
  parameter.add_(update, -double{o.lr()} * ratio);
  return true;
}

}  // namespace lockstep::optim
