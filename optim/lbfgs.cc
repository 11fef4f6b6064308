#include "lockstep/optim/lbfgs.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>

#include "lockstep/optim/internal/scalar.h"
#include "lockstep/optim/internal/wolfe.h"

namespace lockstep::optim {
namespace {

using internal::LinePoint;
using internal::Scalar;
using torch::optim::LBFGSParamState;
using Tensors = std::vector<at::Tensor>;

at::Tensor RealView(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor) : tensor; }

at::Tensor FlatGradient(const Tensors& parameters) {
  Tensors views;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) {
      views.push_back(at::zeros({parameter.numel()}, parameter.options().requires_grad(false)));
    } else {
      views.push_back((gradient.is_sparse() ? gradient.to_dense() : gradient).view(-1));
    }
    views.back() = RealView(views.back()).view(-1);
  }
  return at::cat(views);
}

void Move(const Tensors& parameters, const at::Tensor& direction, double length) {
  int64_t offset = 0;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor numbers = RealView(parameter);
    numbers.add_(direction.narrow(0, offset, numbers.numel()).view_as(numbers), length);
    offset += numbers.numel();
  }
}

Scalar Largest(const at::Tensor& tensor) { return tensor.abs().max(); }

// Remembers how the gradient changed in the last step, if it shows a positive curvature.
void Remember(const at::Tensor& gradient, int64_t history_size, LBFGSParamState& state) {
  const at::Tensor change = gradient.sub(state.prev_flat_grad()), step = state.d().mul(state.t());
  const at::Tensor curvature = change.dot(step);
  if (!(Scalar(1e-10) < Scalar(curvature))) return;
  if (static_cast<int64_t>(state.old_dirs().size()) == history_size) {
    state.old_dirs().pop_front();
    state.old_stps().pop_front();
    state.ro().pop_front();
  }
  state.old_dirs().push_back(change);
  state.old_stps().push_back(step);
  state.ro().push_back(curvature.reciprocal());
  state.H_diag(curvature / change.dot(change));
}

// The gradient, multiplied by the negative of the approximate inverse Hessian.
at::Tensor Direction(const at::Tensor& gradient, int64_t history_size, LBFGSParamState& state) {
  if (!state.al()) state.al(Tensors(history_size));
  Tensors& al = *state.al();
  const auto &changes = state.old_dirs(), &steps = state.old_stps(), &ro = state.ro();
  const int64_t count = static_cast<int64_t>(changes.size());
  const at::Tensor q = gradient.neg();
  for (int64_t i = count - 1; i >= 0; --i) {
    al[i] = steps[i].dot(q) * ro[i];
    q.add_(changes[i], -al[i].item<double>());
  }
  const at::Tensor direction = at::mul(q, state.H_diag());
  for (int64_t i = 0; i < count; ++i)
    direction.add_(steps[i], (al[i] - changes[i].dot(direction) * ro[i]).item<double>());
  return direction;
}

// Sets the direction of the next iteration, and what the one after it compares with.
void Prepare(const at::Tensor& gradient, double loss, int64_t history_size, LBFGSParamState& state) {
  if (state.n_iter() == 1) {
    state.d(gradient.neg()).H_diag(at::scalar_tensor(1, at::kLong)).old_dirs({}).old_stps({}).ro({});
  } else {
    Remember(gradient, history_size, state);
    state.d(Direction(gradient, history_size, state));
  }
  if (state.prev_flat_grad().defined()) {
    state.prev_flat_grad().copy_(gradient);
  } else {
    state.prev_flat_grad(gradient.clone());
  }
  state.prev_loss(loss);
}

at::Tensor Loss(const torch::optim::Optimizer::LossClosure& closure) {
  const c10::AutoGradMode enable_grad(true);
  return closure();
}

// Leaves the parameters as they are.
LinePoint Evaluate(const torch::optim::Optimizer::LossClosure& closure, const Tensors& parameters,
                   const at::Tensor& direction, const Scalar& t) {
  Tensors before;
  for (const at::Tensor& parameter : parameters) before.push_back(parameter.clone());
  Move(parameters, direction, t.value());
  const double loss = Loss(closure).item<double>();
  const at::Tensor gradient = FlatGradient(parameters);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(before[i]);
  return {t, loss, gradient, gradient.dot(direction)};
}

}  // namespace

LBFGS::LBFGS(const std::vector<torch::optim::OptimizerParamGroup>& groups, LBFGSOptions defaults)
    : torch::optim::LBFGS(groups, std::move(defaults)) {
  const double lr = param_groups_[0].options().get_lr();
  TORCH_CHECK_VALUE(lr >= 0, "Invalid learning rate: ", lr);
  const Tensors& parameters = param_groups_[0].params();
  std::set<c10::TensorImpl*> different;
  for (const at::Tensor& parameter : parameters) different.insert(parameter.unsafeGetTensorImpl());
  TORCH_CHECK_VALUE(different.size() == parameters.size(),
                    "some parameters appear in more than one parameter group, or twice in one");
}

at::Tensor LBFGS::step(LossClosure closure) {
  TORCH_CHECK(closure, "LBFGS.step() missing 1 required positional argument: 'closure'");
  const auto& o = static_cast<const LBFGSOptions&>(param_groups_[0].options());
  TORCH_CHECK_VALUE(!std::isnan(o.lr()), "Invalid learning rate: nan");
  TORCH_CHECK(o.line_search_fn().value_or("strong_wolfe") == "strong_wolfe", "only 'strong_wolfe' is supported");
  const c10::NoGradGuard no_grad;
  const Tensors& parameters = param_groups_[0].params();
  auto& slot = state_[parameters.front().unsafeGetTensorImpl()];
  if (!slot) slot = std::make_unique<LBFGSParamState>();
  auto& state = static_cast<LBFGSParamState&>(*slot);
  const int64_t max_eval = o.max_eval().value_or(o.max_iter() * 5 / 4);

  const at::Tensor first_loss = Loss(closure);
  double loss = first_loss.item<double>();
  at::Tensor gradient = FlatGradient(parameters);
  int64_t evaluations = 1;
  state.func_evals(state.func_evals() + 1);
  bool is_optimal = Largest(gradient) <= o.tolerance_grad();
  for (int64_t i = 1; i <= o.max_iter() && !is_optimal; ++i) {
    state.n_iter(state.n_iter() + 1);
    Prepare(gradient, loss, o.history_size(), state);
    Scalar t = o.lr();
    if (state.n_iter() == 1) t = std::min<Scalar>(1.0, 1.0 / Scalar(gradient.abs().sum())) * t;
    state.t(t.value());
    const LinePoint start{0.0, loss, gradient, gradient.dot(state.d())};
    if (-o.tolerance_change() < start.slope) break;
    int64_t more = 0;
    if (o.line_search_fn()) {
      const auto evaluate = [&](const Scalar& length) { return Evaluate(closure, parameters, state.d(), length); };
      internal::LineSearch search(evaluate, start, Largest(state.d()), o.tolerance_change(), max_eval - evaluations);
      const LinePoint found = search.Run(t);
      loss = found.loss;
      gradient = found.gradient;
      state.t(found.t.value());
      more = search.evaluations();
    }
    Move(parameters, state.d(), state.t());
    if (!o.line_search_fn() && i < o.max_iter()) {
      loss = Loss(closure).item<double>();
      gradient = FlatGradient(parameters);
      more = 1;
    }
    is_optimal = Largest(gradient) <= o.tolerance_grad();
    evaluations += more;
    state.func_evals(state.func_evals() + more);
    if (evaluations >= max_eval || Largest(state.d().mul(state.t())) <= o.tolerance_change() ||
        std::abs(loss - state.prev_loss()) < o.tolerance_change())
      break;
  }
  return first_loss;
}

}  // namespace lockstep::optim
