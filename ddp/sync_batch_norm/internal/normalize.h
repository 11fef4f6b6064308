#ifndef LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_NORMALIZE_H_
#define LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_NORMALIZE_H_

#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/sync_batch_norm/internal/statistics.h"

namespace lockstep::ddp::internal {

// (input - mean) / sqrt(variance + eps) * weight + bias, channel by channel, where the statistics are those of all
// ranks' inputs. `input`: [N, C, ...], dense; `weight` and `bias`: [C], or both undefined.
//
// Backward (Ioffe and Szegedy, "Batch Normalization", 2015, section 3) sums over the ranks what the loss owes to the
// shared mean and variance: one all-reduce of 2C doubles, by every rank, also by one whose input is empty, and by none
// if the input needs no gradient. The gradients of weight and bias are of this rank's values alone; their sum over the
// ranks is the whole. Backward throws StatusError, which is Unimplemented if it is itself to be differentiated. `group`
// must outlive the graph.
at::Tensor Normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const BatchStatistics& statistics, double eps, comm::ProcessGroup& group);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_NORMALIZE_H_
