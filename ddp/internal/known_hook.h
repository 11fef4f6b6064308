#ifndef LOCKSTEP_DDP_INTERNAL_KNOWN_HOOK_H_
#define LOCKSTEP_DDP_INTERNAL_KNOWN_HOOK_H_

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "lockstep/ddp/communication_hook.h"

namespace lockstep::ddp::internal {

// How a hook averages: it casts the gradients to `dtype`, divides them by the number of ranks and adds them. Not set:
// without a cast.
struct HookAverage {
  std::optional<c10::ScalarType> dtype;
};

// A hook of the library. DistributedDataParallel recognizes it inside a CommunicationHook.
struct KnownHook {
  std::string name;
  std::optional<HookAverage> average;  // not set: the hook does something else
  CommunicationHook call;

  Future operator()(GradBucket& bucket) const { return call(bucket); }
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_KNOWN_HOOK_H_
