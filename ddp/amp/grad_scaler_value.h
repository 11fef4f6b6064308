#ifndef LOCKSTEP_DDP_AMP_GRAD_SCALER_VALUE_H_
#define LOCKSTEP_DDP_AMP_GRAD_SCALER_VALUE_H_

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/ddp/amp/grad_scaler.h"

namespace lockstep::ddp {

// Converts a scaler's state to a checkpoint's value with the keys of Python's GradScaler.state_dict(), so that each
// language continues from the other's.
//
//   value.Set("scaler", ToValue(scaler.State()));
//   LOCKSTEP_ASSIGN_OR_RETURN(const GradScalerState state, ToGradScalerState(*value.Find("scaler")));
//   LOCKSTEP_RETURN_IF_ERROR(scaler.LoadState(state));
checkpoint::Value ToValue(const GradScalerState& state);

// The inverse. NotFound, InvalidArgument, naming the key: the value has another form. Python's scaler that is not
// enabled has an empty dict.
absl::StatusOr<GradScalerState> ToGradScalerState(const checkpoint::Value& value);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_AMP_GRAD_SCALER_VALUE_H_
