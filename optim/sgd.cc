#include "lockstep/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>

namespace lockstep::optim {

using internal::kParameter;

void SGDOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("momentum", momentum());
  visitor.Visit("dampening", dampening());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("nesterov", nesterov());
  visitor.Visit("maximize", maximize());
  visitor.Visit("foreach", foreach ());
  visitor.Constant("differentiable", false);
  visitor.Visit("fused", fused());
}

void SGDOptions::Check() const {
  TORCH_CHECK_VALUE(lr() >= 0.0, "Invalid learning rate: ", double{lr()});
  TORCH_CHECK_VALUE(momentum() >= 0, "Invalid momentum value: ", momentum());
  TORCH_CHECK_VALUE(weight_decay() >= 0, "Invalid weight_decay value: ", weight_decay());
  TORCH_CHECK_VALUE(!nesterov() || (momentum() > 0 && dampening() == 0),
                    "Nesterov momentum requires a momentum and zero dampening");
  CheckModes();
}

const std::vector<const char*>& SGD::state_keys() const {
  static const std::vector<const char*> keys = {"momentum_buffer"};
  return keys;
}

// Python accepts any.
void SGD::CheckSparse(const Options& options) const {
  TORCH_CHECK(!options.use_fused().value_or(false), "`_fused_sgd` does not support sparse gradients");
}

void SGD::Write(const Options& options, const State& state, double step, bool foreach,
                internal::Program& program) const {
  const auto& o = static_cast<const SGDOptions&>(options);
  constexpr internal::Register kBuffer = internal::kState;
  const internal::Register scratch = program.Temporary();
  internal::Register gradient = program.Gradient(scratch, o.maximize(), o.weight_decay());
  if (o.momentum() != 0) {
    if (state.tensors[0].defined()) {
      program.Mul(kBuffer, kBuffer, o.momentum());
      program.Add(kBuffer, kBuffer, gradient, 1 - o.dampening());
    } else {
      program.Clone(kBuffer, gradient);
    }
    if (o.nesterov()) program.Add(scratch, gradient, kBuffer, o.momentum());
    gradient = o.nesterov() ? scratch : kBuffer;
  }
  program.Add(kParameter, kParameter, gradient, -o.lr());
}

void SGD::Fused(const Options& options, Batch& batch) const {
  const auto& o = static_cast<const SGDOptions&>(options);
  std::vector<at::Tensor> buffers = o.momentum() == 0 ? std::vector<at::Tensor>() : batch.states[0];
  const auto missing = [](const at::Tensor& buffer) { return !buffer.defined(); };
  const bool is_first_step = !buffers.empty() && std::all_of(buffers.begin(), buffers.end(), missing);
  TORCH_CHECK(is_first_step || std::none_of(buffers.begin(), buffers.end(), missing),
              "fused SGD: some parameters of a group have a momentum_buffer and others do not");
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (is_first_step) batch.states[0][i] = buffers[i] = at::empty_like(batch.gradients[i]);
  }
  const auto step = [&](const auto& lr) {
    at::_fused_sgd_(batch.parameters, batch.gradients, buffers, o.weight_decay(), o.momentum(), lr, o.dampening(),
                    o.nesterov(), o.maximize(), is_first_step, batch.grad_scale, batch.found_inf);
  };
  o.lr().is_tensor() ? step(o.lr().tensor()) : step(double{o.lr()});
}

}  // namespace lockstep::optim
