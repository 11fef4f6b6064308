#ifndef LOCKSTEP_FSDP_INTERNAL_SHARDED_ACCESS_H_
#define LOCKSTEP_FSDP_INTERNAL_SHARDED_ACCESS_H_

#include "lockstep/fsdp/fully_sharded.h"

namespace lockstep::fsdp::internal {

// The part of a handle that does not depend on the module's type, for functions outside of its class.
struct ShardedAccess {
  template <typename Net>
  static ShardedModule& Of(const FullyShardedDataParallel<Net>& net) {
    return *net.module_;
  }
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_SHARDED_ACCESS_H_
