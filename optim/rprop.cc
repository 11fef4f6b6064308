#include "lockstep/optim/rprop.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <c10/util/complex.h>

namespace lockstep::optim {

void RpropOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("etas", etas());
  visitor.Visit("step_sizes", step_sizes());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("maximize", maximize());
  visitor.Constant("differentiable", false);
  visitor.Visit("capturable", capturable());
}

void RpropOptions::Check() const {
  const auto [minus, plus] = etas();
  TORCH_CHECK_VALUE(lr() >= 0.0, "Invalid learning rate: ", double{lr()});
  TORCH_CHECK_VALUE(minus > 0 && minus < 1 && plus > 1, "Invalid eta values: ", minus, ", ", plus);
}

const std::vector<const char*>& Rprop::state_keys() const {
  static const std::vector<const char*> keys = {"step", "prev", "step_size"};
  return keys;
}

void Rprop::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  const double lr = static_cast<const RpropOptions&>(options).lr();
  state.tensors[1] = at::zeros_like(parameter);
  state.tensors[2] = at::full_like(state.tensors[1],
                                   parameter.is_complex() ? at::Scalar(c10::complex<double>(lr, lr)) : at::Scalar(lr));
}

bool Rprop::StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                      State& state) const {
  const auto& o = static_cast<const RpropOptions&>(options);
  const auto [minus, plus] = o.etas();
  const auto [smallest, largest] = o.step_sizes();
  const auto as_real = [](const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor) : tensor; };
  const at::Tensor previous = as_real(state.tensors[1]), size = as_real(state.tensors[2]);
  const at::Tensor descent = as_real(o.maximize() ? -gradient : gradient);
  at::Tensor factor = descent.mul(previous).sign_();
  const at::Tensor changed = factor.lt(0), stayed = factor.gt(0);
  factor.fill_(1).masked_fill_(stayed, plus).masked_fill_(changed, minus);
  size.mul_(factor).clamp_(smallest, largest);
  previous.copy_(descent).masked_fill_(changed, 0);
  as_real(parameter).addcmul_(previous.sign(), size, -1);
  return true;
}

}  // namespace lockstep::optim
