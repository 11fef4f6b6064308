#ifndef LOCKSTEP_FSDP_INTERNAL_SHARDED_ACCESS_H_
#define LOCKSTEP_FSDP_INTERNAL_SHARDED_ACCESS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/fsdp/fully_sharded.h"

namespace lockstep::fsdp::internal {

// The part of a handle that does not depend on the module's type, for functions outside of its class.
struct ShardedAccess {
  template <typename Net>
  static ShardedModule& Of(const FullyShardedDataParallel<Net>& net) {
    return *net.module_;
  }
};

// FailedPrecondition if a World keeps the shards, whose places then change with the ranks.
inline absl::Status CheckNotKept(const ShardedModule& module) {
  if (!module.kept()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", module.group()->rank(),
                   ": a World keeps the shards: after World::GatherShards(), save "
                   "checkpoint::StateDict(*net.module()) and the optimizer's state dict on that rank"));
}

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
