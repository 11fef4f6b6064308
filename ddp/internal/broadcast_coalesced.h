#ifndef LOCKSTEP_DDP_INTERNAL_BROADCAST_COALESCED_H_
#define LOCKSTEP_DDP_INTERNAL_BROADCAST_COALESCED_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// Gives every rank what the tensors of rank `root` hold, in place, through flat buffers of one dtype and device and up
// to 250 MiB each: the same broadcasts as PyTorch's, in the same order.
absl::Status BroadcastCoalesced(comm::ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root = 0);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_BROADCAST_COALESCED_H_
