// Gradient clipping by a norm on which all ranks agree.

#ifndef LOCKSTEP_DDP_CLIP_GRAD_NORM_H_
#define LOCKSTEP_DDP_CLIP_GRAD_NORM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp {

struct ClipGradNormOptions {
  // Must be at least 0. Infinity: the largest absolute value. 0: the number of gradients with an element other than 0
  // (if sharded, the sum of the ranks' numbers).
  double norm_type = 2.0;

  // If the norm is NaN or infinite, return an error and change no gradient. Otherwise the gradients are scaled by the
  // result: with an infinite norm they become zero or NaN, with a NaN norm all become NaN.
  bool error_if_nonfinite = false;

  // Each rank passes its share of the parameters. The shares must not overlap, and may be empty. The norm is that of
  // all shares. Not in a group with Python ranks, and not under Join.
  bool sharded = false;

  // The device of the collective. Default: that of the first parameter, or the CPU if a rank has no parameters.
  std::optional<c10::Device> device;
};

// Scales the gradients of `parameters` in place by min(1, max_norm / (norm + 1e-6)). The norm is that of all gradients
// as one vector. Returns the norm before scaling. This is Python's torch.nn.utils.clip_grad_norm_ over ranks. Call it
// between backward and the optimizer's step.
//
//   loss.backward();   // DDP leaves the same gradients on every rank
//   absl::StatusOr<double> norm = ddp::ClipGradNorm(*group, ddp.parameters(), /*max_norm=*/1.0);
//   if (!norm.ok()) return norm.status();
//   optimizer.step();
//
// Every rank of the group must call it with the same options, `max_norm` and, unless sharded, parameters. It is one
// all-gather of two doubles. In a group that may have Python ranks (also one from FromC10d()), and under Join, it sends
// nothing, and each rank clips by its own norm, as Python does. Parameters without a gradient are ignored. A parameter
// that occurs twice (a tied weight) counts once.
//
// If not sharded, every rank computes the norm, and all scale by rank 0's, so rounding cannot make parameters diverge.
// The norm and the gradients have the bits of Python's clip_grad_norm_ in one process. LibTorch's
// torch::nn::utils::clip_grad_norm_ rounds differently (docs/coming-from-python.md). Python has no norm of sparse
// gradients; here it is that of the coalesced values. The norms of two ranks may differ by rounding: by a thousandth,
// or for half and bfloat16 by 4 units in the last place. If a rank's norm differs more from rank 0's, or only one of
// the two is finite, every rank returns FailedPrecondition with the ranks and their norms, and no gradient changes. If
// sharded, the ranks' norms are combined in double and not compared.
//
// InvalidArgument, before anything is sent: norm_type or max_norm is negative or NaN, or sharded is set where nothing
// can be sent. FailedPrecondition on every rank,
// with error_if_nonfinite: the norm is not finite. The error names the first rank that has a gradient with such a norm,
// and the gradient's index in that rank's `parameters`. Other errors come from the collective or from LibTorch.
absl::StatusOr<double> ClipGradNorm(comm::ProcessGroup& group, const std::vector<at::Tensor>& parameters,
                                    double max_norm, const ClipGradNormOptions& options = {});

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_CLIP_GRAD_NORM_H_
