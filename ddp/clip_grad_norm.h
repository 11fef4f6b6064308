// Gradient clipping on which all ranks agree.

#ifndef LOCKSTEP_DDP_CLIP_GRAD_NORM_H_
#define LOCKSTEP_DDP_CLIP_GRAD_NORM_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp {

struct ClipGradNormOptions {
  // At least 0; infinity is the largest absolute value. With 0 the norm is the number of gradients that have an element
  // other than 0; sharded, the sum of the ranks' numbers.
  double norm_type = 2.0;

  // A norm that is NaN or infinite is an error, and no gradient is changed. Without it the gradients are scaled by what
  // comes out: an infinite norm makes them zero or NaN, a NaN all NaN.
  bool error_if_nonfinite = false;

  // Each rank passes its share of the parameters, no two ranks the same, perhaps none; the norm is that of all shares.
  bool sharded = false;

  // Of the collective. Not set: the first parameter's, or the CPU where a rank has no parameter.
  absl::optional<c10::Device> device;
};

// Scales the gradients of `parameters`, in place, by min(1, max_norm / (norm + 1e-6)), where norm is that of all
// gradients as one vector, and returns norm as it was before: Python's torch.nn.utils.clip_grad_norm_ over ranks. To be
// called between backward and the optimizer's step.
//
//   loss.backward();   // DDP leaves the same gradients on every rank
//   absl::StatusOr<double> norm = ddp::ClipGradNorm(*group, ddp.parameters(), /*max_norm=*/1.0);
//   if (!norm.ok()) return norm.status();
//   optimizer.step();
//
// Every rank of the group must call it, with the same options, `max_norm` and, unless sharded, parameters. It is one
// all-gather of two doubles. Parameters without a gradient are passed over; one that is given twice (a tied weight)
// counts once.
//
// Not sharded: every rank computes the norm, and all scale by rank 0's, so parameters cannot drift apart by rounding;
// norm and gradients have the bits that Python's clip_grad_norm_ in one process would give them. LibTorch's
// torch::nn::utils::clip_grad_norm_ rounds differently (docs/coming-from-python.md). Python has no norm of a sparse
// gradient; here it is that of its coalesced values. A rank whose norm differs from rank
// 0's by more than rounding explains (a thousandth; 4 units in the last place for half and bfloat16), or is not finite
// where the other is, has other gradients: FailedPrecondition on every rank, naming the ranks and their norms, with all
// gradients as they were. Sharded, the ranks' norms are combined, in
// double; nothing is compared.
//
// InvalidArgument, before anything is sent: norm_type negative or NaN, max_norm negative or NaN. FailedPrecondition for
// a non-finite norm, if asked for, on every rank; it names the first rank that has a gradient with such a norm, and the
// gradient's number in that rank's `parameters`. Otherwise the error of the collective or of LibTorch.
absl::StatusOr<double> ClipGradNorm(comm::ProcessGroup& group, const std::vector<at::Tensor>& parameters,
                                    double max_norm, const ClipGradNormOptions& options = {});

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_CLIP_GRAD_NORM_H_
