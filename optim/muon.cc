#include "lockstep/optim/muon.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace lockstep::optim {
namespace {

// The nearest matrix with orthonormal rows or columns, approximately. A bfloat16 `matrix` is changed.
at::Tensor Orthogonal(const at::Tensor& matrix, const MuonOptions& o) {
  const auto [a, b, c] = o.ns_coefficients();
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  if (is_tall) x = x.t();
  x.div_(at::linalg_vector_norm(x, 2).clamp_min(o.eps()));
  for (int64_t i = 0; i < o.ns_steps(); ++i) {
    const at::Tensor gram = x.matmul(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return is_tall ? x.t() : x;
}

double RateFactor(const MuonOptions& o, double rows, double columns) {
  if (o.adjust_lr_fn() == "match_rms_adamw") return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace

void MuonOptions::Visit(OptionVisitor& visitor) {
  visitor.Visit("lr", lr());
  visitor.Visit("weight_decay", weight_decay());
  visitor.Visit("momentum", momentum());
  visitor.Visit("nesterov", nesterov());
  visitor.Visit("ns_coefficients", ns_coefficients());
  visitor.Visit("eps", eps());
  visitor.Visit("ns_steps", ns_steps());
  visitor.Visit("adjust_lr_fn", adjust_lr_fn());
}

void MuonOptions::Check() const {
  const std::string rule = adjust_lr_fn().value_or("original");
  TORCH_CHECK_VALUE(lr() >= 0.0, "Learning rate should be >= 0 but is: ", double{lr()});
  TORCH_CHECK_VALUE(momentum() >= 0, "momentum should be >= 0 but is: ", momentum());
  TORCH_CHECK_VALUE(weight_decay() >= 0, "weight decay should be >= 0 but is: ", weight_decay());
  TORCH_CHECK_VALUE(rule == "original" || rule == "match_rms_adamw", "Adjust learning rate function ", rule,
                    " is not supported");
  TORCH_CHECK_VALUE(ns_steps() < 100, "Number of steps must be less than 100 for computational efficiency");
}

Muon::Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups, MuonOptions defaults)
    : OptimizerOf(groups, std::move(defaults)) {
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) {
    for (const at::Tensor& parameter : group.params()) {
      TORCH_CHECK_VALUE(parameter.dim() == 2,
                        "Muon only supports 2D parameters whereas we found a parameter with size: torch.Size(",
                        parameter.sizes(), ")");
    }
  }
}

const std::vector<const char*>& Muon::state_keys() const {
  static const std::vector<const char*> keys = {"momentum_buffer"};
  return keys;
}

void Muon::InitState(const at::Tensor& parameter, const Options& options, State& state) const {
  state.tensors[0] = at::zeros_like(parameter);
}

bool Muon::StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                     State& state) const {
  TORCH_CHECK(!parameter.is_complex(), "Muon does not support complex parameters");
  const auto& o = static_cast<const MuonOptions&>(options);
  const at::Tensor& momentum = state.tensors[0];
  momentum.lerp_(gradient, 1 - o.momentum());
  const at::Tensor update = Orthogonal(o.nesterov() ? gradient.lerp(momentum, o.momentum()) : momentum, o);
  const double factor = RateFactor(o, static_cast<double>(parameter.size(0)), static_cast<double>(parameter.size(1)));
  const double kept = o.lr().Times(o.weight_decay()).SubtractedFrom(1);
  parameter.mul_(at::native::wrapped_scalar_tensor(kept));
  parameter.add_(update, -o.lr().Times(factor));
  return true;
}

}  // namespace lockstep::optim
