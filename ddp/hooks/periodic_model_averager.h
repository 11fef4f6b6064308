// Averages parameters that ranks have trained apart.

#ifndef LOCKSTEP_DDP_HOOKS_PERIODIC_MODEL_AVERAGER_H_
#define LOCKSTEP_DDP_HOOKS_PERIODIC_MODEL_AVERAGER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::hooks {

struct PeriodicModelAveragerOptions {
  // Averages in every period-th step. With 1, DistributedDataParallel alone costs less.
  int64_t period = 4;

  // The first steps, in which parameters are the same on all ranks anyway.
  int64_t warmup_steps = 0;
};

// Makes parameters the same on all ranks of a group again, once every few steps; for post-local SGD (see
// post_local_sgd.h, which has the training loop) and other local training.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto averager, PeriodicModelAverager::Create(group.get(), {/*period=*/4}));
//   for (...) {
//     ...
//     optimizer.step();
//     LOCKSTEP_RETURN_IF_ERROR(averager.AverageParameters(net->parameters()));
//   }
//
// `group` must outlive it. Not thread-safe. Movable.
class PeriodicModelAverager {
 public:
  // Not collective; every rank must give the same options. InvalidArgument: period below 1, warmup_steps negative.
  static absl::StatusOr<PeriodicModelAverager> Create(comm::ProcessGroup* group,
                                                      const PeriodicModelAveragerOptions& options);

  // Counts a step; in step warmup_steps (counted from 0) and every period-th after it, gives every rank the average of
  // all ranks' `parameters`, in place: each is divided by the number of ranks, then summed, in one all-reduce for each
  // dtype and device, through flat buffers of the parameters' size. Blocks until the other ranks do the same. The
  // tensors must be the same list on every rank in every step; unlike PyTorch's, those without a gradient are averaged
  // too, since another rank may have one. On an error the parameters are unspecified. InvalidArgument: a tensor is
  // undefined or no floating-point or complex one. Otherwise the errors of an all-reduce.
  absl::Status AverageParameters(const std::vector<at::Tensor>& parameters);

 private:
  PeriodicModelAverager(comm::ProcessGroup* group, const PeriodicModelAveragerOptions& options)
      : group_(group), options_(options) {}

  comm::ProcessGroup* group_;
  PeriodicModelAveragerOptions options_;
  int64_t step_ = 0;
};

}  // namespace lockstep::ddp::hooks

#endif  // LOCKSTEP_DDP_HOOKS_PERIODIC_MODEL_AVERAGER_H_
