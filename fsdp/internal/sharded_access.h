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

// While it exists, shards are read and written, and parameters are taken for their sizes only.
class ShardsOnly {
 public:
  explicit ShardsOnly(const ShardedModule& module) : memory_(module.memory()) { memory_.BeginShards(); }
  ~ShardsOnly() { memory_.EndShards(); }
  ShardsOnly(const ShardsOnly&) = delete;
  ShardsOnly& operator=(const ShardsOnly&) = delete;

 private:
  ParameterMemory& memory_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_SHARDED_ACCESS_H_
