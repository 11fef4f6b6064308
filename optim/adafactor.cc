#include "lockstep/optim/adafactor.h"

#include <ATen/Dispatch.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::optim {
namespace {

using at::native::wrapped_scalar_tensor;

double RootOfMeanSquare(const at::Tensor& tensor, double divisor = 1) {
  // pow() as in Python: sqrt() may round otherwise.
  return at::linalg_vector_norm(tensor, 2).item<double>() / (std::pow(tensor.numel(), 0.5) * divisor);
}

void MoveToMeanSquare(const at::Tensor& average, const at::Tensor& gradient, int64_t dim, double weight) {
  const at::Tensor length = at::linalg_vector_norm(gradient, 2, dim, /*keepdim=*/true);
  average.lerp_(length.square_().div_(gradient.size(dim)), weight);
}

double Epsilon(at::ScalarType type) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "Adafactor",
                                         [] { return static_cast<double>(std::numeric_limits<scalar_t>::epsilon()); });
}

}  // namespace

void AdafactorOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("beta2_decay", beta2_decay());
  visitor.Visit("eps", eps());
  visitor.Visit("d", d());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("foreach", foreach ());
  visitor.Visit("maximize", maximize());
}

void AdafactorOptions::Check() const {
  const auto [epsilon1, epsilon2] = eps();
  TORCH_CHECK_VALUE(lr() >= 0.0, "Learning rate should be >= 0 but is: ", double{lr()});
  TORCH_CHECK_VALUE(beta2_decay() <= 0, "beta2_decay should be <= 0 but is: ", beta2_decay());
  TORCH_CHECK_VALUE(epsilon1.value_or(0) >= 0, "epsilon1 should be >= 0 but is: ", *epsilon1);
  TORCH_CHECK_VALUE(epsilon2 >= 0, "epsilon2 should be >= 0 but is: ", epsilon2);
  TORCH_CHECK_VALUE(d() >= 1, "Clipping threshold d should be >= 1 but is: ", d());
  TORCH_CHECK_VALUE(weight_decay() >= 0, "weight_decay should be >= 0 but is: ", weight_decay());
}

const std::vector<const char*>& Adafactor::state_keys() const {
  static const std::vector<const char*> keys = {"step", "row_var", "col_var", "variance"};
  return keys;
}

void Adafactor::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  const int64_t dims = parameter.dim();
  if (dims < 2) {
    state.tensors[3] = at::zeros_like(parameter);
    return;
  }
  for (int i = 1; i < 3; ++i) {
    std::vector<int64_t> sizes = parameter.sizes().vec();
    sizes[dims - i] = 1;
    state.tensors[i] = at::zeros(sizes, parameter.options().requires_grad(false));
  }
}

void Adafactor::BeginGroup(const Options& options, const std::vector<at::Tensor>& parameters) {
  const auto& o = static_cast<const AdafactorOptions&>(options);
  TORCH_CHECK(std::none_of(parameters.begin(), parameters.end(), [](const at::Tensor& p) { return p.is_complex(); }),
              "Adafactor does not support complex parameters");
  at::ScalarType type = parameters.front().scalar_type();
  if (o.foreach ().value_or(false)) {
    const std::vector<std::optional<at::Tensor>> tensors(parameters.begin(), parameters.end());
    type = at::native::_group_tensors_by_first_tensors_device_and_dtype({tensors}, false).begin()->first.second;
  }
  epsilon_ = std::get<0>(o.eps()).value_or(Epsilon(type));
}

bool Adafactor::StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                          State& state) const {
  const auto& o = static_cast<const AdafactorOptions&>(options);
  const at::Tensor descent = o.maximize() ? -gradient : gradient;
  const double weight = std::pow(step, o.beta2_decay()), largest_rate = 1 / std::pow(step, 0.5);
  // A tensor compares in its own dtype.
  const bool is_capped = o.lr().is_tensor() ? (o.lr().tensor() > largest_rate).item<bool>() : largest_rate < o.lr();
  const Number relative = is_capped ? Number(largest_rate) : o.lr();
  const Number rate = relative.Times(std::max(std::get<1>(o.eps()), RootOfMeanSquare(parameter)));
  if (o.weight_decay() != 0)
    parameter.mul_(wrapped_scalar_tensor(double{o.lr().Times(o.weight_decay()).SubtractedFrom(1)}));
  at::Tensor update;
  if (parameter.dim() > 1) {
    const at::Tensor &rows = state.tensors[1], &columns = state.tensors[2];
    MoveToMeanSquare(rows, descent, -1, weight);
    MoveToMeanSquare(columns, descent, -2, weight);
    update = rows.matmul(columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_min_(epsilon_));
  } else {
    update = state.tensors[3].lerp_(descent * descent, weight).clone();
  }
  update.clamp_min_(epsilon_ * epsilon_).rsqrt_().mul_(descent);
  const Number length = rate.Times(-1).DividedBy(std::max(1.0, RootOfMeanSquare(update, o.d())));
  if (o.foreach ().value_or(false)) {
    parameter.add_(length.is_tensor() ? update.mul_(length.tensor()) : update.mul_(double{length}));
  } else {
    parameter.add_(update, double{length});
  }
  return true;
}

}  // namespace lockstep::optim
