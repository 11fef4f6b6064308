#ifndef LOCKSTEP_DDP_HOOKS_POWER_SGD_VALUE_H_
#define LOCKSTEP_DDP_HOOKS_POWER_SGD_VALUE_H_

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/ddp/hooks/power_sgd.h"

namespace lockstep::ddp::hooks {

// Converts the state of a PowerSGD hook to a checkpoint's value. Call it between steps. The tensors share the state's
// memory, which the hook does not change later.
//
// The errors differ by rank. A checkpoint that continues to the same bits has each rank's value, under a name per rank:
// SaveSharded(directory, {{absl::StrCat("power_sgd_", group->rank()), ToValue(*options.state)}}, group).
checkpoint::Value ToValue(const PowerSgdState& state);

// The inverse. NotFound, InvalidArgument, naming the key: the value has another form.
absl::StatusOr<PowerSgdState> ToPowerSgdState(const checkpoint::Value& value);

}  // namespace lockstep::ddp::hooks

#endif  // LOCKSTEP_DDP_HOOKS_POWER_SGD_VALUE_H_
