// Loss scaling, for training in half precision.

#ifndef LOCKSTEP_DDP_AMP_GRAD_SCALER_H_
#define LOCKSTEP_DDP_AMP_GRAD_SCALER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep::ddp {

// Names and defaults are the same as in torch.amp.GradScaler, except where noted.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // more than 1
  double backoff_factor = 0.5;     // between 0 and 1
  int64_t growth_interval = 2000;  // at least 1
  bool enabled = true;

  // Not in PyTorch: a step is skipped if any rank of this group found an infinity or a NaN. Needed if the ranks step
  // different gradients (a sharded optimizer). After DistributedDataParallel's backward all ranks have the same
  // gradients. Borrowed; may be null.
  comm::ProcessGroup* group = nullptr;
};

// The state of a GradScaler for a checkpoint, with the names of its state dict in Python.
struct GradScalerState {
  double scale = 0;
  double growth_factor = 0;
  double backoff_factor = 0;
  int64_t growth_interval = 0;
  int64_t growth_tracker = 0;  // "_growth_tracker": steps since the last change of the scale
};

// Multiplies the loss, so that small gradients do not become zero in half precision. Divides the gradients again before
// the step, and skips a step whose gradients overflowed. The scale is multiplied by backoff_factor (halved) after a
// skipped step, and by growth_factor (doubled) after growth_interval steps without one. See Micikevicius et al., "Mixed
// Precision Training", 2018. The rule and the kernels are the same as in torch.amp.GradScaler, on CPUs and GPUs.
// bfloat16 has float's range and does not need scaling.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(ddp::GradScaler scaler, ddp::GradScaler::Create());
//   scaler.Scale(loss).backward();
//   LOCKSTEP_RETURN_IF_ERROR(scaler.Unscale(optimizer));   // if the gradients are looked at before the step: clipping
//   LOCKSTEP_ASSIGN_OR_RETURN(const bool stepped, scaler.Step(optimizer));
//   LOCKSTEP_RETURN_IF_ERROR(scaler.Update());
//
// In each iteration, call backward for every loss. Then call Unscale() (if needed) and Step() once for every optimizer,
// and then Update(). Calls out of order return FailedPrecondition and change nothing. Optimizers are identified by
// their address until Update(). An optimizer whose step needs a closure is not supported.
//
// Each rank has a separate GradScaler. Without `group` nothing is sent: ranks with equal gradients make equal
// decisions. With `group`, Unscale(), or Step() without it, is one all-reduce of a float on the scale's device. All
// ranks must call it, even if a rank's optimizer has no gradients.
//
// Not thread-safe. Errors of LibTorch are converted by TorchStatus(). Only Scale() throws, since it is part of the
// graph.
class GradScaler {
 public:
  // InvalidArgument: a factor, the scale or the interval is out of range.
  static absl::StatusOr<GradScaler> Create(const GradScalerOptions& options = {});

  // Returns outputs * scale in the dtype of `outputs`, or `outputs` itself if not enabled. A half-precision tensor may
  // overflow: keep losses in float, as autocast's loss functions do. The first call determines the scale's device.
  at::Tensor Scale(const at::Tensor& outputs);

  // Divides the gradients of the optimizer's parameters by the scale, in place, and records whether one is infinite or
  // NaN afterwards. FailedPrecondition: a second call, a call after Step() or before the first Scale(), no gradients at
  // all (without `group`), or half-precision gradients (keep parameters in float and use Autocast).
  absl::Status Unscale(torch::optim::Optimizer& optimizer);

  // Calls Unscale(), unless it was called, and then optimizer.step() if all gradients are finite. Returns whether it
  // stepped. As in Python, a lockstep::optim::Optimizer with `fused` divides the gradients itself, in its step.
  // FailedPrecondition: as Unscale(), or a second call.
  absl::StatusOr<bool> Step(torch::optim::Optimizer& optimizer);

  // Ends the iteration: adapts the scale, or sets it to `new_scale`, which must be positive. FailedPrecondition: no
  // optimizer was unscaled and there is no `new_scale`, or Scale() was never called.
  absl::Status Update(std::optional<double> new_scale = std::nullopt);

  // The scale; 1 if not enabled. Waits for the scale's device.
  double GetScale() const;
  bool enabled() const { return options_.enabled; }

  // Call State() after Update(). LoadState() returns InvalidArgument as Create() does, and does nothing if not enabled.
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
  absl::Status FindInfinities(const torch::optim::Optimizer& optimizer, bool unscale);
  absl::StatusOr<at::Tensor> UnscaleGradients(const torch::optim::Optimizer& optimizer, bool unscale) const;

  GradScalerOptions options_;  // init_scale applies until scale_ is defined
  int64_t init_growth_tracker_ = 0;
  at::Tensor scale_;           // 0-dimensional float; undefined before the first Scale()
  at::Tensor growth_tracker_;  // 0-dimensional int32
  std::unordered_map<const torch::optim::Optimizer*, PerOptimizer> optimizers_;  // of this iteration
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_AMP_GRAD_SCALER_H_
