// Averages parameters that ranks have trained separately.

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
  // Averages in every period-th step. With 1, DistributedDataParallel alone is cheaper.
  int64_t period = 4;

  // The number of first steps without averaging, during which parameters are equal on all ranks anyway.
  int64_t warmup_steps = 0;
};

// Makes the parameters of a group's ranks equal again, once every few steps, for post-local SGD (see the training loop
// in post_local_sgd.h) and other local training.
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
  // Not collective, but every rank must pass the same options. InvalidArgument: period is below 1, or warmup_steps is
  // negative.
  static absl::StatusOr<PeriodicModelAverager> Create(comm::ProcessGroup* group,
                                                      const PeriodicModelAveragerOptions& options);

  // Counts a step. In step warmup_steps (counted from 0) and every period-th after it, sets `parameters` on every rank
  // to the average over all ranks, in place. Each is divided by the number of ranks and then summed, with one
  // all-reduce for each dtype and device, in flat buffers of the parameters' size. Blocks until the other ranks call
  // it. The list of tensors must be the same on every rank in every step. Unlike in PyTorch, parameters without a
  // gradient are averaged too, since another rank may have one. After an error the parameters are unspecified.
  // InvalidArgument: a tensor is undefined, or neither floating-point nor complex. Other errors come from the
  // all-reduce.
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
