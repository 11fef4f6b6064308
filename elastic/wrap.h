// DDP's wrapper for a module that a World keeps.

#ifndef LOCKSTEP_ELASTIC_WRAP_H_
#define LOCKSTEP_ELASTIC_WRAP_H_

#include <utility>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::elastic {

// Wraps `net` like ddp::Wrap(), and returns its errors. Every rank of `group` calls it, in the function that
// World::Run() calls. World gives all ranks the same parameters and buffers in Run() and Commit(), so this wrapper
// neither sends nor compares them: it sets options.init_sync and options.broadcast_buffers to false.
template <typename Net>
absl::StatusOr<ddp::DistributedDataParallel<Net>> Wrap(Net net, comm::ProcessGroup* group, ddp::Options options = {}) {
  options.init_sync = options.broadcast_buffers = false;
  return ddp::Wrap(std::move(net), group, options);
}

}  // namespace lockstep::elastic

#endif  // LOCKSTEP_ELASTIC_WRAP_H_
