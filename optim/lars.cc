#include "lockstep/optim/lars.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include "lockstep/optim/internal/norm.h"

namespace lockstep::optim {

using internal::Norm;

void LARSOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("momentum", momentum());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("trust_coefficient", trust_coefficient());
  visitor.Visit("maximize", maximize());
}

void LARSOptions::Check() const {
  TORCH_CHECK_VALUE(lr() >= 0.0, "Invalid learning rate: ", double{lr()});
  TORCH_CHECK_VALUE(momentum() >= 0, "Invalid momentum value: ", momentum());
  TORCH_CHECK_VALUE(weight_decay() >= 0, "Invalid weight_decay value: ", weight_decay());
  TORCH_CHECK_VALUE(trust_coefficient() >= 0, "Invalid trust_coefficient value: ", trust_coefficient());
}

const std::vector<const char*>& LARS::state_keys() const {
  static const std::vector<const char*> keys = {"momentum_buffer"};
  return keys;
}

void LARS::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  state.tensors[0] = at::zeros_like(parameter);
}

bool LARS::StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                     State& state) const {
  TORCH_CHECK(!parameter.is_complex(), "LARS does not support complex parameters");
  const auto& o = static_cast<const LARSOptions&>(options);
  const at::Tensor descent = o.maximize() ? -gradient : gradient;
  const double length = Norm(parameter), slope = Norm(descent);
  const double ratio =
      length > 0 && slope > 0 ? o.trust_coefficient() * length / (slope + o.weight_decay() * length) : 1;
  const at::Tensor& momentum = state.tensors[0];
  // In reduced precision, the product with a number rounds the number first.
  momentum.mul_(at::native::wrapped_scalar_tensor(o.momentum()));
  momentum.add_(descent.add(parameter, o.weight_decay()), double{o.lr()} * ratio);
  parameter.sub_(momentum);
  return true;
}

}  // namespace lockstep::optim
