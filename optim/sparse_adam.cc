#include "lockstep/optim/sparse_adam.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace lockstep::optim {
namespace {

using at::native::wrapped_scalar_tensor;

// "[[group, parameter], ...]"
template <typename Holds>
std::string Indices(const std::vector<torch::optim::OptimizerParamGroup>& groups, const Holds& holds) {
  std::string indices;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t j = 0; j < groups[i].params().size(); ++j) {
      if (holds(groups[i].params()[j])) absl::StrAppend(&indices, indices.empty() ? "[" : ", ", "[", i, ", ", j, "]");
    }
  }
  return indices.empty() ? indices : indices + "]";
}

}  // namespace

void SparseAdamOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("betas", betas());
  visitor.Visit("eps", eps());
  visitor.Visit("maximize", maximize());
}

void SparseAdamOptions::Check() const {
  TORCH_CHECK_VALUE(lr() > 0.0, "Invalid learning rate: ", double{lr()});
  TORCH_CHECK_VALUE(eps() > 0, "Invalid epsilon value: ", eps());
  CheckAdamFamily(lr(), betas(), eps(), /*weight_decay=*/0);
}

SparseAdam::SparseAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups, SparseAdamOptions defaults)
    : OptimizerOf(groups, std::move(defaults)) {
  const std::string sparse = Indices(groups, [](const at::Tensor& parameter) { return parameter.is_sparse(); });
  TORCH_CHECK_VALUE(sparse.empty(), "Sparse params at indices ", sparse,
                    ": SparseAdam requires dense parameter tensors");
  const std::string complex = Indices(groups, [](const at::Tensor& parameter) { return parameter.is_complex(); });
  TORCH_CHECK_VALUE(complex.empty(), "Complex params at indices ", complex,
                    ": SparseAdam does not support complex parameters");
}

const std::vector<const char*>& SparseAdam::state_keys() const {
  static const std::vector<const char*> keys = {"step", "exp_avg", "exp_avg_sq"};
  return keys;
}

// Python counts in an int.
void SparseAdam::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  state.tensors[0] = at::zeros({}, at::kLong);
  for (int i = 1; i < 3; ++i) state.tensors[i] = at::zeros_like(parameter);
}

void SparseAdam::CheckSparse(const Options& options) const {}

void SparseAdam::BeginGroup(const Options& options, const std::vector<at::Tensor>& parameters) {
  TORCH_CHECK(
      std::all_of(parameters.begin(), parameters.end(), [](const at::Tensor& p) { return p.grad().is_sparse(); }),
      "SparseAdam does not support dense gradients, please consider Adam instead");
}

bool SparseAdam::StepSparse(const Options& options, double step, const at::Tensor& parameter,
                            const at::Tensor& gradient, State& state) const {
  const auto& o = static_cast<const SparseAdamOptions&>(options);
  const auto [beta1, beta2] = o.betas();
  const at::Tensor rows = (o.maximize() ? -gradient : gradient).coalesce(), values = rows._values();
  if (values.numel() == 0) return true;
  const auto add = [&rows = rows](const at::Tensor& to, const at::Tensor& addend) {
    to.add_(at::sparse_coo_tensor(rows._indices(), addend, rows.sizes()));
  };
  // Moves an average to `target`, and returns the rows after it.
  const auto moved = [&](const at::Tensor& average, const at::Tensor& target, double weight) {
    const at::Tensor before = average.sparse_mask(rows)._values(),
                     change = target.sub(before).mul_(wrapped_scalar_tensor(weight));
    add(average, change);
    return before + change;
  };
  const at::Tensor average = moved(state.tensors[1], values, 1 - beta1);
  const at::Tensor root = moved(state.tensors[2], values.pow(2), 1 - beta2).sqrt_().add_(o.eps());
  const Number length = o.lr().Times(std::sqrt(1 - std::pow(beta2, step))).DividedBy(1 - std::pow(beta1, step));
  const at::Tensor update = average.div_(root);
  add(parameter, length.is_tensor() ? -length.tensor() * update : update * wrapped_scalar_tensor(-length));
  return true;
}

}  // namespace lockstep::optim
