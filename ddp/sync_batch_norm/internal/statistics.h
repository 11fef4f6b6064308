// Mean and variance of each channel over the batches of all ranks.

#ifndef LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_STATISTICS_H_
#define LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_STATISTICS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// Tensors of C doubles, C being the number of channels, on the input's device.
struct BatchStatistics {
  at::Tensor mean;
  at::Tensor variance;  // the mean of the squared deviations: not Bessel's
  int64_t count = 0;    // values a channel
};

// The dtype in which an input of `dtype` is summed up: float for half and bfloat16, else `dtype`.
c10::ScalarType StatisticsDtype(c10::ScalarType dtype);

// This rank's part, [2C + 1] doubles: each channel's mean, its sum of squared deviations from it, and the number of
// values a channel; zeros for an empty input. `input`: [N, C, ...], dense.
at::Tensor LocalStatistics(const at::Tensor& input);

// Combines the local statistics, [ranks, 2C + 1], into the statistics of all values, by the rule of Chan, Golub and
// LeVeque ("Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979) for any number of parts:
// nothing large cancels, as it does in the difference of a sum of squares and a squared sum. NaN if all ranks' inputs
// are empty.
BatchStatistics CombineStatistics(const at::Tensor& gathered);

// One all-gather; every rank gets the same bits. InvalidArgument, on every rank, if the ranks together have fewer than
// two values a channel, which have no variance.
absl::StatusOr<BatchStatistics> SynchronizeStatistics(const at::Tensor& input, comm::ProcessGroup& group);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_INTERNAL_STATISTICS_H_
