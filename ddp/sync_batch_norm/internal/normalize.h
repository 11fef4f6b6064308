#ifndef LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_NORMALIZE_H_
#define LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_NORMALIZE_H_

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/sync_batch_norm/internal/statistics.h"

namespace lockstep::ddp::internal {

// (input - mean) / sqrt(variance + eps) * weight + bias, channel by channel, with the statistics of all ranks' inputs.
// `input`: [N, C, ...], dense; `weight` and `bias`: [C], or both undefined.
//
// Backward (Ioffe and Szegedy, "Batch Normalization", 2015, section 3) sums the gradients of the shared mean and
// variance over the ranks: one all-reduce of 2C doubles on every rank, also if its input is empty. If the input needs
// no gradient, nothing is sent. The gradients of weight and bias cover this rank's values only; their sum over the
// ranks is the whole gradient. Backward throws StatusError. Unimplemented: backward is to be differentiated. `group`
// must outlive the graph.
at::Tensor Normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const BatchStatistics& statistics, double eps, comm::ProcessGroup& group);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_NORMALIZE_H_
