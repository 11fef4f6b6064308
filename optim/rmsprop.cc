#include "lockstep/optim/rmsprop.h"

#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

namespace lockstep::optim {

using internal::kParameter;

void RMSpropOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("momentum", momentum());
  visitor.Visit("alpha", alpha());
  visitor.Visit("eps", eps());
  visitor.Visit("centered", centered());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("capturable", capturable());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("maximize", maximize());
  visitor.Constant("differentiable", false);
}

void RMSpropOptions::Check() const {
  TORCH_CHECK_VALUE(lr() >= 0.0, "Invalid learning rate: ", double{lr()});
  TORCH_CHECK_VALUE(eps() >= 0, "Invalid epsilon value: ", eps());
  TORCH_CHECK_VALUE(momentum() >= 0, "Invalid momentum value: ", momentum());
  TORCH_CHECK_VALUE(weight_decay() >= 0, "Invalid weight_decay value: ", weight_decay());
  TORCH_CHECK_VALUE(alpha() >= 0, "Invalid alpha value: ", alpha());
}

const std::vector<const char*>& RMSprop::state_keys() const {
  static const std::vector<const char*> keys = {"step", "square_avg", "momentum_buffer", "grad_avg"};
  return keys;
}

void RMSprop::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  const auto& o = static_cast<const RMSpropOptions&>(options);
  state.tensors[1] = at::zeros_like(parameter);
  if (o.momentum() > 0) state.tensors[2] = at::zeros_like(parameter);
  if (o.centered()) state.tensors[3] = at::zeros_like(parameter);
}

void RMSprop::Write(const Options& options, const State& state, double step, bool foreach,
                    internal::Program& program) const {
  const auto& o = static_cast<const RMSpropOptions&>(options);
  constexpr internal::Register kSquares = internal::kState + 1, kBuffer = kSquares + 1, kAverage = kSquares + 2;
  const internal::Register scratch = program.Temporary(), root = program.Temporary();
  const internal::Register gradient = program.Gradient(scratch, o.maximize(), o.weight_decay());
  program.AsReal();
  program.Mul(kSquares, kSquares, o.alpha());
  program.Addcmul(kSquares, kSquares, gradient, gradient, 1 - o.alpha());
  if (o.centered()) {
    program.Lerp(kAverage, kAverage, gradient, 1 - o.alpha());
    program.Addcmul(root, kSquares, kAverage, kAverage, -1);
  }
  program.Sqrt(root, o.centered() ? root : kSquares);
  program.AddScalar(root, root, o.eps());
  if (o.momentum() > 0) {
    program.Mul(kBuffer, kBuffer, o.momentum());
    program.Addcdiv(kBuffer, kBuffer, gradient, root, 1);
    program.Add(kParameter, kParameter, kBuffer, -o.lr());
  } else {
    program.Addcdiv(kParameter, kParameter, gradient, root, -o.lr());
  }
}

}  // namespace lockstep::optim
