#ifndef LOCKSTEP_DDP_NO_SYNC_H_
#define LOCKSTEP_DDP_NO_SYNC_H_

#include <utility>

#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::ddp {

// While it lives, backward passes of `ddp` whose forward runs under it only accumulate gradients, on each rank its own;
// the first after it averages what has come together. All ranks must do the same. Guards may be nested.
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
