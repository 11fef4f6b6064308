#include "lockstep/optim/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace lockstep::optim {

using internal::kParameter;

template <bool kDecoupled>
void BasicAdamOptions<kDecoupled>::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("betas", betas());
  visitor.Visit("eps", eps());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("amsgrad", amsgrad());
  visitor.Visit("maximize", maximize());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("capturable", capturable());
  visitor.Constant("differentiable", false);
  visitor.Visit("fused", fused());
  if (kDecoupled) {
    visitor.Constant("decoupled_weight_decay", true);
  } else {
    visitor.Visit("decoupled_weight_decay", decoupled_weight_decay());
  }
}

template <bool kDecoupled>
void BasicAdamOptions<kDecoupled>::Check() const {
  TORCH_CHECK_VALUE(!foreach ().value_or(false) || capturable() || !lr().is_tensor(),
                    "lr as a Tensor is not supported for capturable=False and foreach=True");
  this->CheckAdamFamily(lr(), betas(), eps(), weight_decay());
  this->CheckModes();
}

template <bool kDecoupled>
const std::vector<const char*>& BasicAdam<kDecoupled>::state_keys() const {
  static const std::vector<const char*> keys = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return keys;
}

template <bool kDecoupled>
void BasicAdam<kDecoupled>::CheckSparse(const Options& options) const {
  TORCH_CHECK(false, "Adam does not support sparse gradients, please consider SparseAdam instead");
}

template <bool kDecoupled>
void BasicAdam<kDecoupled>::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  const auto& o = static_cast<const BasicAdamOptions<kDecoupled>&>(options);
  for (int i = 1; i < (o.amsgrad() ? 4 : 3); ++i) state.tensors[i] = at::zeros_like(parameter);
}

template <bool kDecoupled>
void BasicAdam<kDecoupled>::Write(const Options& options, const State& state, double step, bool foreach,
                                  internal::Program& program) const {
  const auto& o = static_cast<const BasicAdamOptions<kDecoupled>&>(options);
  const auto [beta1, beta2] = o.betas();
  constexpr internal::Register kAverage = internal::kState + 1, kSquares = kAverage + 1, kLargest = kAverage + 2;
  const internal::Register scratch = program.Temporary();
  const bool decoupled = kDecoupled || o.decoupled_weight_decay();
  const internal::Register gradient = program.Gradient(scratch, o.maximize(), decoupled ? 0 : o.weight_decay());
  if (decoupled && o.weight_decay() != 0)
    program.Mul(kParameter, kParameter, o.lr().Times(o.weight_decay()).SubtractedFrom(1));
  program.AsReal();
  program.Lerp(kAverage, kAverage, gradient, 1 - beta1);
  program.Mul(kSquares, kSquares, beta2);
  program.Addcmul(kSquares, kSquares, gradient, gradient, 1 - beta2);
  if (o.amsgrad()) program.Maximum(kLargest, kLargest, kSquares);
  program.Sqrt(scratch, o.amsgrad() ? kLargest : kSquares);
  // pow() as in Python: sqrt() may round otherwise.
  program.Div(scratch, scratch, std::pow(1 - std::pow(beta2, step), 0.5));
  program.AddScalar(scratch, scratch, o.eps());
  program.Addcdiv(kParameter, kParameter, kAverage, scratch, -o.lr().DividedBy(1 - std::pow(beta1, step)));
}

template <bool kDecoupled>
void BasicAdam<kDecoupled>::Fused(const Options& options, Batch& batch) const {
  const auto& o = static_cast<const BasicAdamOptions<kDecoupled>&>(options);
  const auto [beta1, beta2] = o.betas();
  const std::vector<at::Tensor> largest = o.amsgrad() ? batch.states[3] : std::vector<at::Tensor>();
  const auto step = [&, beta1 = beta1, beta2 = beta2](const auto& kernel, const auto& lr) {
    kernel(batch.parameters, batch.gradients, batch.states[1], batch.states[2], largest, batch.states[0], lr, beta1,
           beta2, o.weight_decay(), o.eps(), o.amsgrad(), o.maximize(), batch.grad_scale, batch.found_inf);
  };
  const auto with_rate = [&](const auto& kernel) {
    o.lr().is_tensor() ? step(kernel, o.lr().tensor()) : step(kernel, double{o.lr()});
  };
  if (kDecoupled || o.decoupled_weight_decay()) {
    with_rate([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    with_rate([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
}

template struct BasicAdamOptions<false>;
template struct BasicAdamOptions<true>;
template class BasicAdam<false>;
template class BasicAdam<true>;

}  // namespace lockstep::optim
