#include "lockstep/optim/asgd.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace lockstep::optim {
namespace {

using internal::kParameter;

// Python's loop computes with numbers, and its multi-tensor function with the count of steps, a tensor.
at::Tensor NextEta(const ASGDOptions& o, const at::Tensor& counter, double step, bool foreach) {
  const auto root = [&](const at::Tensor& product) { return product.add(1).pow(o.alpha()); };
  if (o.lr().is_tensor()) {
    const at::Tensor lr = o.lr().tensor(), scaled = lr.mul(o.lambd());
    return lr.div(root(foreach ? scaled.mul(counter) : scaled.mul(step)));
  }
  const double lr = o.lr(), scaled = o.lambd() * lr;
  if (foreach) return root(counter.mul(scaled)).reciprocal().mul(lr);
  return at::scalar_tensor(lr / std::pow(1 + scaled * step, o.alpha()));
}

}  // namespace

void ASGDOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("lambd", lambd());
  visitor.Visit("alpha", alpha());
  visitor.Visit("t0", t0());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("maximize", maximize());
  visitor.Constant("differentiable", false);
  visitor.Visit("capturable", capturable());
}

void ASGDOptions::Check() const {
  TORCH_CHECK_VALUE(lr() >= 0.0, "Invalid learning rate: ", double{lr()});
  TORCH_CHECK_VALUE(weight_decay() >= 0, "Invalid weight_decay value: ", weight_decay());
}

const std::vector<const char*>& ASGD::state_keys() const {
  static const std::vector<const char*> keys = {"step", "eta", "mu", "ax"};
  return keys;
}

void ASGD::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  at::Tensor& counter = state.tensors[0];
  counter = counter.to(parameter.device());
  state.tensors[1] = at::full_like(counter, double{static_cast<const ASGDOptions&>(options).lr()});
  state.tensors[2] = at::ones_like(counter);
  state.tensors[3] = at::zeros_like(parameter);
}

void ASGD::Write(const Options& options, const State& state, double step, bool foreach,
                 internal::Program& program) const {
  const auto& o = static_cast<const ASGDOptions&>(options);
  constexpr internal::Register kEta = internal::kState + 1, kMu = kEta + 1, kAverage = kEta + 2;
  const internal::Register scratch = program.Temporary();
  program.AsReal();
  const internal::Register gradient = program.Gradient(scratch, o.maximize(), o.weight_decay());
  if (foreach) {
    program.Add(scratch, gradient, kParameter, o.lambd());
    program.Addcmul(kParameter, kParameter, scratch, kEta, -1);
    program.Add(scratch, kParameter, kAverage, -1);
    program.Addcmul(kAverage, kAverage, scratch, kMu, 1);
  } else {
    const double rate = state.tensors[1].item<double>(), weight = state.tensors[2].item<double>();
    program.Mul(kParameter, kParameter, 1 - o.lambd() * rate);
    program.Add(kParameter, kParameter, gradient, -rate);
    if (weight == 1) {
      program.Copy(kAverage, kParameter);
    } else {
      program.Add(scratch, kParameter, kAverage, -1);
      program.Mul(scratch, scratch, weight);
      program.Add(kAverage, kAverage, scratch);
    }
  }
}

void ASGD::Finish(const Options& options, const State& state, bool foreach) const {
  const auto& o = static_cast<const ASGDOptions&>(options);
  const at::Tensor& counter = state.tensors[0];
  const double step = counter.item<double>();
  state.tensors[1].copy_(NextEta(o, counter, step, foreach));
  state.tensors[2].copy_(at::scalar_tensor(1 / std::max(1.0, step - o.t0())));
}

}  // namespace lockstep::optim
