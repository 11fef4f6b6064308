// Loss scaling, for training in half precision.

#ifndef LOCKSTEP_DDP_AMP_GRAD_SCALER_H_
#define LOCKSTEP_DDP_AMP_GRAD_SCALER_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp {

// The names and defaults are those of torch.amp.GradScaler, but where noted.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // more than 1
  double backoff_factor = 0.5;     // between 0 and 1
  int64_t growth_interval = 2000;  // at least 1
  bool enabled = true;

  // Ours: a step is skipped if any rank of this group found an infinity or a NaN. Needed where the ranks step different
  // gradients (a sharded optimizer); after DistributedDataParallel's backward all have the same. Borrowed; may be null.
  comm::ProcessGroup* group = nullptr;
};

// What a checkpoint keeps of a GradScaler, under the names of its state dict in Python.
struct GradScalerState {
  double scale = 0;
  double growth_factor = 0;
  double backoff_factor = 0;
  int64_t growth_interval = 0;
  int64_t growth_tracker = 0;  // "_growth_tracker": steps since the scale last changed
};

// Multiplies the loss, so that small gradients do not vanish in half precision, divides the gradients again before the
// step, and skips steps whose gradients overflowed. The scale halves (backoff_factor) after a skipped step and doubles
// (growth_factor) after growth_interval steps without one; Micikevicius et al., "Mixed Precision Training", 2018, and
// torch.amp.GradScaler, whose rule it keeps, by the same kernels. On CPUs and GPUs. bfloat16 has float's range and
// needs none of it.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(ddp::GradScaler scaler, ddp::GradScaler::Create());
//   scaler.Scale(loss).backward();
//   LOCKSTEP_RETURN_IF_ERROR(scaler.Unscale(optimizer));   // if the gradients are looked at before the step: clipping
//   LOCKSTEP_ASSIGN_OR_RETURN(const bool stepped, scaler.Step(optimizer));
//   LOCKSTEP_RETURN_IF_ERROR(scaler.Update());
//
// In each iteration: backward for every loss, then for every optimizer Unscale() if needed and Step(), each once, then
// Update(). Calls out of order are FailedPrecondition and change nothing. An optimizer is known by its address until
// Update(). Optimizers whose step needs a closure are not supported.
//
// Which ranks must call it: each has its own. Without `group` nothing is sent, and ranks with equal gradients stay in
// step, since each decides by the same numbers. With `group` Unscale(), or Step() in its place, is one all-reduce of a
// float, on the scale's device, by all ranks, also by one whose optimizer has no gradients.
//
// Not thread-safe. Errors of LibTorch come as TorchStatus() gives them; only Scale() throws, as it is part of the
// graph.
class GradScaler {
 public:
  // InvalidArgument for factors, a scale or an interval out of range.
  static absl::StatusOr<GradScaler> Create(const GradScalerOptions& options = {});

  // outputs * scale, of outputs' dtype; `outputs` itself if not enabled. A half-precision tensor may overflow here:
  // losses are better in float, as autocast's loss functions leave them. The first call decides the scale's device.
  at::Tensor Scale(const at::Tensor& outputs);

  // Divides the gradients of the optimizer's parameters by the scale, in place, and notes whether one is infinite or
  // NaN afterwards. FailedPrecondition: called a second time or after Step(), before the first Scale(), with no
  // gradient at all (without `group`), or with gradients in half, whose parameters should be in float under Autocast.
  absl::Status Unscale(torch::optim::Optimizer& optimizer);

  // Unscale(), unless it was called, and optimizer.step() if all gradients are finite. Returns whether it stepped.
  // FailedPrecondition as Unscale(), or called a second time.
  absl::StatusOr<bool> Step(torch::optim::Optimizer& optimizer);

  // Ends the iteration: adapts the scale, or sets it to `new_scale`, more than 0. FailedPrecondition if no optimizer
  // was unscaled and there is no `new_scale`, or before the first Scale().
  absl::Status Update(absl::optional<double> new_scale = absl::nullopt);

  // 1 if not enabled. Waits for the scale's device.
  double GetScale() const;
  bool enabled() const { return options_.enabled; }

  // To be taken after Update(). LoadState() is InvalidArgument as Create() is, and does nothing if not enabled.
  GradScalerState State() const;
  absl::Status LoadState(const GradScalerState& state);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    at::Tensor found_inf;  // [1], float: more than 0 if a gradient is not finite
  };

  explicit GradScaler(const GradScalerOptions& options) : options_(options) {}
  absl::Status FailedPrecondition(absl::string_view message) const;
  absl::Status CheckScaled(absl::string_view call) const;
  absl::StatusOr<at::Tensor> UnscaleGradients(const torch::optim::Optimizer& optimizer) const;
  absl::Status Adapt();

  GradScalerOptions options_;  // init_scale: until there is scale_
  int64_t init_growth_tracker_ = 0;
  at::Tensor scale_;           // 0-dimensional float; undefined before the first Scale()
  at::Tensor growth_tracker_;  // 0-dimensional int32
  std::unordered_map<const torch::optim::Optimizer*, PerOptimizer> optimizers_;  // of this iteration
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_AMP_GRAD_SCALER_H_
