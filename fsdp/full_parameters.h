#ifndef LOCKSTEP_FSDP_FULL_PARAMETERS_H_
#define LOCKSTEP_FSDP_FULL_PARAMETERS_H_

#include <memory>

#include "lockstep/fsdp/internal/sharded_module.h"

namespace lockstep::fsdp {

enum class Access { kRead, kWrite };

// While it exists, all parameters of a module are whole: see FullyShardedDataParallel::FullParameters(). Movable. Tensors
// that share the parameters' memory, such as a state dict's, must not be used after it.
class FullParameters {
 public:
  // For FullyShardedDataParallel.
  explicit FullParameters(internal::ShardedModule* module) : module_(module) {}

 private:
  struct End {
    void operator()(internal::ShardedModule* module) const { module->EndFull(); }
  };
  std::unique_ptr<internal::ShardedModule, End> module_;
};

}  // namespace lockstep::fsdp

#endif  // LOCKSTEP_FSDP_FULL_PARAMETERS_H_
