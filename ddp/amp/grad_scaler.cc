#include "lockstep/ddp/amp/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::ddp {
namespace {

absl::Status Check(const GradScalerState& state) {
  const auto expected = [](absl::string_view what, double found) {
    return absl::InvalidArgumentError(absl::StrCat("GradScaler: expected ", what, ", found ", found));
  };
  if (!(state.scale > 0) || std::isinf(state.scale)) return expected("a finite scale of more than 0", state.scale);
  if (!(state.growth_factor > 1)) return expected("a growth_factor of more than 1", state.growth_factor);
  if (!(state.backoff_factor > 0 && state.backoff_factor < 1)) {
    return expected("a backoff_factor between 0 and 1", state.backoff_factor);
  }
  if (state.growth_interval < 1) return expected("a growth_interval of at least 1", state.growth_interval);
  if (state.growth_tracker < 0) return expected("a growth_tracker of at least 0", state.growth_tracker);
  return absl::OkStatus();
}

// Gradients of one device and dtype, which the kernel requires.
struct Batch {
  at::TensorOptions options;
  std::vector<at::Tensor> gradients;
};

void AddTo(std::vector<Batch>& batches, const at::Tensor& gradient) {
  for (Batch& batch : batches) {
    if (batch.options.device() == gradient.device() && batch.gradients[0].scalar_type() == gradient.scalar_type()) {
      batch.gradients.push_back(gradient);
      return;
    }
  }
  batches.push_back({gradient.options().dtype(at::kFloat).layout(at::kStrided), {gradient}});
}

// A tied weight's gradient, which the optimizer may have twice, counts once.
absl::StatusOr<std::vector<Batch>> GradientsOf(const torch::optim::Optimizer& optimizer) {
  std::vector<Batch> batches;
  std::unordered_set<const at::TensorImpl*> seen;
  const auto& groups = optimizer.param_groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t p = 0; p < groups[g].params().size(); ++p) {
      const at::Tensor& parameter = groups[g].params()[p];
      if (!parameter.grad().defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      const at::Tensor gradient = parameter.grad().is_sparse() ? parameter.grad()._values() : parameter.grad();
      if (gradient.scalar_type() == at::kHalf) {
        return absl::FailedPreconditionError(absl::StrCat("expected gradients in float, found half for parameter ", p,
                                                          " of parameter group ", g,
                                                          "; keep parameters in float and compute under Autocast"));
      }
      AddTo(batches, gradient);
    }
  }
  return batches;
}

// Returns the optimizer if its step divides the gradients by the scale, else nullptr.
optim::Optimizer* FusedOptimizer(torch::optim::Optimizer& optimizer) {
  auto* const ours = dynamic_cast<optim::Optimizer*>(&optimizer);
  return ours && ours->StepSupportsAmpScaling() ? ours : nullptr;
}

}  // namespace

absl::StatusOr<GradScaler> GradScaler::Create(const GradScalerOptions& options) {
  GradScaler scaler(options);
  if (options.enabled) LOCKSTEP_RETURN_IF_ERROR(Check(scaler.State()));
  return scaler;
}

at::Tensor GradScaler::Scale(const at::Tensor& outputs) {
  if (!options_.enabled) return outputs;
  if (!scale_.defined()) {
    const at::TensorOptions options = at::TensorOptions().device(outputs.device());
    scale_ = at::full({}, options_.init_scale, options.dtype(at::kFloat));
    growth_tracker_ = at::full({}, init_growth_tracker_, options.dtype(at::kInt));
  }
  return outputs * scale_.to(outputs.device());
}

absl::Status GradScaler::Unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(CheckScaled("Unscale"));
  const auto known = optimizers_.find(&optimizer);
  if (known != optimizers_.end()) {
    return FailedPrecondition(known->second.stage == Stage::kStepped
                                  ? "Unscale was called after Step for this optimizer"
                                  : "Unscale was called twice for this optimizer since the last Update");
  }
  return FindInfinities(optimizer, /*unscale=*/true);
}

absl::Status GradScaler::FindInfinities(const torch::optim::Optimizer& optimizer, bool unscale) {
  absl::StatusOr<at::Tensor> found_inf = absl::UnknownError("");
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("GradScaler", [&] { found_inf = UnscaleGradients(optimizer, unscale); }));
  LOCKSTEP_RETURN_IF_ERROR(found_inf.status());
  optimizers_[&optimizer] = {Stage::kUnscaled, *found_inf};
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> GradScaler::UnscaleGradients(const torch::optim::Optimizer& optimizer, bool unscale) const {
  const c10::NoGradGuard no_grad;
  absl::StatusOr<std::vector<Batch>> batches = GradientsOf(optimizer);
  if (!batches.ok()) return FailedPrecondition(batches.status().message());
  if (batches->empty() && !options_.group) {
    return FailedPrecondition("no parameter of this optimizer has a gradient");
  }
  // The reciprocal is computed in double and rounded once.
  const at::Tensor inverse =
      unscale ? scale_.to(at::kDouble).reciprocal().to(at::kFloat) : at::ones({}, scale_.options());
  at::Tensor found_inf = at::zeros({1}, scale_.options());
  for (const Batch& batch : *batches) {
    at::Tensor found = at::zeros({}, batch.options);
    at::_amp_foreach_non_finite_check_and_unscale_(batch.gradients, found, inverse.to(batch.options.device()));
    found_inf.add_(found.to(found_inf.device()));
  }
  if (options_.group) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(options_.group->AllReduce(found_inf, comm::ReduceOp::kMax),
                                      "GradScaler: which ranks found infinities"));
  }
  return found_inf;
}

absl::StatusOr<bool> GradScaler::Step(torch::optim::Optimizer& optimizer) {
  bool finite = true;
  if (options_.enabled) {
    auto known = optimizers_.find(&optimizer);
    auto* const fused = FusedOptimizer(optimizer);
    const bool unscaled = known != optimizers_.end();
    if (!unscaled) {
      LOCKSTEP_RETURN_IF_ERROR(CheckScaled("Unscale"));
      LOCKSTEP_RETURN_IF_ERROR(FindInfinities(optimizer, /*unscale=*/!fused));
      known = optimizers_.find(&optimizer);
    }
    if (known->second.stage == Stage::kStepped) {
      return FailedPrecondition("Step was called twice for this optimizer since the last Update");
    }
    known->second.stage = Stage::kStepped;
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("GradScaler", [&] { finite = known->second.found_inf.item<float>() == 0; }));
    if (finite && fused && !unscaled) fused->SetGradScale(scale_, known->second.found_inf);
  }
  if (finite) LOCKSTEP_RETURN_IF_ERROR(TorchStatus("the optimizer's step", [&] { optimizer.step(); }));
  return finite;
}

absl::Status GradScaler::Update(std::optional<double> new_scale) {
  if (!options_.enabled) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(CheckScaled("Update"));
  if (new_scale.has_value()) {
    GradScalerState state = State();
    state.scale = *new_scale;
    LOCKSTEP_RETURN_IF_ERROR(Check(state));
    scale_.fill_(*new_scale);
  } else if (optimizers_.empty()) {
    return FailedPrecondition("Update was called before any optimizer's Unscale or Step");
  } else {
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("GradScaler", [&] {
      at::Tensor found_inf = at::zeros({1}, scale_.options());
      for (const auto& [optimizer, state] : optimizers_) found_inf.add_(state.found_inf);
      at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor, options_.backoff_factor,
                             options_.growth_interval);
    }));
  }
  optimizers_.clear();
  return absl::OkStatus();
}

double GradScaler::GetScale() const {
  if (!options_.enabled) return 1;
  return scale_.defined() ? scale_.item<double>() : options_.init_scale;
}

GradScalerState GradScaler::State() const {
  GradScalerState state;
  state.scale = GetScale();
  state.growth_factor = options_.growth_factor;
  state.backoff_factor = options_.backoff_factor;
  state.growth_interval = options_.growth_interval;
  state.growth_tracker = growth_tracker_.defined() ? growth_tracker_.item<int64_t>() : init_growth_tracker_;
  return state;
}

absl::Status GradScaler::LoadState(const GradScalerState& state) {
  if (!options_.enabled) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(Check(state));
  options_.init_scale = state.scale;
  options_.growth_factor = state.growth_factor;
  options_.backoff_factor = state.backoff_factor;
  options_.growth_interval = state.growth_interval;
  init_growth_tracker_ = state.growth_tracker;
  if (scale_.defined()) {
    scale_.fill_(state.scale);
    growth_tracker_.fill_(state.growth_tracker);
  }
  return absl::OkStatus();
}

absl::Status GradScaler::FailedPrecondition(absl::string_view message) const {
  const comm::ProcessGroup* group = options_.group;
  const std::string rank = group ? absl::StrCat("rank ", group->rank(), " of ", group->size(), ": ") : "";
  return absl::FailedPreconditionError(absl::StrCat(rank, "GradScaler: ", message));
}

absl::Status GradScaler::CheckScaled(absl::string_view call) const {
  if (scale_.defined()) return absl::OkStatus();
  return FailedPrecondition(absl::StrCat(call, " was called before any Scale"));
}

}  // namespace lockstep::ddp
