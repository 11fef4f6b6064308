#ifndef LOCKSTEP_FSDP_NO_SYNC_H_
#define LOCKSTEP_FSDP_NO_SYNC_H_

#include "lockstep/fsdp/fully_sharded.h"

namespace lockstep::fsdp {

// While it exists, backward only accumulates gradients in the module's parameters, whole on each rank. The first
// backward after it averages these sums over the ranks, once. Without NoSync each backward is averaged, and the averages
// add up: that sends more, and rounds otherwise. Every rank must do the same.
//
//   {
//     fsdp::NoSync no_sync(net);
//     loss(net(first)).backward();
//   }
//   loss(net(second)).backward();
class NoSync {
 public:
  template <typename Net>
  explicit NoSync(FullyShardedDataParallel<Net>& net) : module_(net.module_.get()), before_(module_->sync()) {
    module_->set_sync(false);
  }
  ~NoSync() { module_->set_sync(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  internal::ShardedModule* const module_;
  const bool before_;
};

}  // namespace lockstep::fsdp

#endif  // LOCKSTEP_FSDP_NO_SYNC_H_
