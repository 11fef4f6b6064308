#ifndef LOCKSTEP_DDP_OPTIONS_H_
#define LOCKSTEP_DDP_OPTIONS_H_

#include "absl/types/optional.h"

namespace lockstep::ddp {

// The names, meanings and defaults are those of torch.nn.parallel.DistributedDataParallel.
struct Options {
  // Broadcast buffers (such as BatchNorm's running statistics) from rank 0 before each forward.
  bool broadcast_buffers = true;

  // Give every rank rank 0's parameters and buffers when wrapping. Without it they must be equal already.
  bool init_sync = true;

  // Gradients are reduced in buckets of about this many MiB. Not set: 25, with a first bucket of 1 MiB so that reducing
  // starts early.
  absl::optional<double> bucket_cap_mb;

  // Gradients live in the buckets: no copy back after reducing, and no memory beside them.
  bool gradient_as_bucket_view = false;
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_OPTIONS_H_
