#include "lockstep/optim/adadelta.h"

#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

namespace lockstep::optim {

using internal::kParameter;

void AdadeltaOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("rho", rho());
  visitor.Visit("eps", eps());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("maximize", maximize());
  visitor.Visit("capturable", capturable());
  visitor.Visit("foreach", foreach ());
  visitor.Constant("differentiable", false);
}

void AdadeltaOptions::Check() const {
  TORCH_CHECK_VALUE(lr() >= 0.0, "Invalid learning rate: ", double{lr()});
  TORCH_CHECK_VALUE(rho() >= 0 && rho() <= 1, "Invalid rho value: ", rho());
  TORCH_CHECK_VALUE(eps() >= 0, "Invalid epsilon value: ", eps());
  TORCH_CHECK_VALUE(weight_decay() >= 0, "Invalid weight_decay value: ", weight_decay());
}

const std::vector<const char*>& Adadelta::state_keys() const {
  static const std::vector<const char*> keys = {"step", "square_avg", "acc_delta"};
  return keys;
}

void Adadelta::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  for (int i = 1; i < 3; ++i) state.tensors[i] = at::zeros_like(parameter);
}

void Adadelta::Write(const Options& options, const State& state, double step, bool foreach,
                     internal::Program& program) const {
  const auto& o = static_cast<const AdadeltaOptions&>(options);
  constexpr internal::Register kSquares = internal::kState + 1, kDeltas = kSquares + 1;
  const internal::Register scratch = program.Temporary(), root = program.Temporary(), delta = program.Temporary();
  const internal::Register gradient = program.Gradient(scratch, o.maximize(), o.weight_decay());
  program.AsReal();
  program.Mul(kSquares, kSquares, o.rho());
  program.Addcmul(kSquares, kSquares, gradient, gradient, 1 - o.rho());
  program.AddScalar(root, kSquares, o.eps());
  program.Sqrt(root, root);
  program.AddScalar(delta, kDeltas, o.eps());
  program.Sqrt(delta, delta);
  program.Div(delta, delta, root);
  program.Mul(delta, delta, gradient);
  program.Mul(kDeltas, kDeltas, o.rho());
  program.Addcmul(kDeltas, kDeltas, delta, delta, 1 - o.rho());
  // Python's loop adds complex numbers, which rounds otherwise.
  program.AsComplex(delta);
  program.AsComplex(kParameter);
  program.Add(kParameter, kParameter, delta, -o.lr());
}

}  // namespace lockstep::optim
