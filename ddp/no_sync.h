#ifndef LOCKSTEP_DDP_NO_SYNC_H_
#define LOCKSTEP_DDP_NO_SYNC_H_

#include <utility>

#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::ddp {

// While a NoSync exists, the backward passes of forwards under it only accumulate gradients, separately on each rank.
// The first backward after it averages the accumulated gradients. All ranks must do the same. NoSyncs may be nested.
//
//   {
//     ddp::NoSync no_sync(ddp);
//     for (const Batch& part : parts) loss(ddp(part)).backward();
//   }
//   loss(ddp(last_part)).backward();   // averages all of them
class NoSync {
 public:
  template <typename Net>
  explicit NoSync(DistributedDataParallel<Net>& ddp) : replica_(&internal::ReplicaOf(ddp)), before_(replica_->sync()) {
    replica_->set_sync(false);
  }
  ~NoSync() { replica_->set_sync(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  internal::Replica* const replica_;
  const bool before_;
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_NO_SYNC_H_
