#include "lockstep/ddp/amp/grad_scaler_value.h"

#include "lockstep/base/status.h"

namespace lockstep::ddp {

using checkpoint::Value;

Value ToValue(const GradScalerState& state) {
  return Value::Dict({{"scale", state.scale},
                      {"growth_factor", state.growth_factor},
                      {"backoff_factor", state.backoff_factor},
                      {"growth_interval", state.growth_interval},
                      {"_growth_tracker", state.growth_tracker}});
}

absl::StatusOr<GradScalerState> ToGradScalerState(const Value& value) {
  GradScalerState state;
  LOCKSTEP_ASSIGN_OR_RETURN(state.scale, checkpoint::GetDouble(value, "scale"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.growth_factor, checkpoint::GetDouble(value, "growth_factor"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.backoff_factor, checkpoint::GetDouble(value, "backoff_factor"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.growth_interval, checkpoint::GetInt(value, "growth_interval"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.growth_tracker, checkpoint::GetInt(value, "_growth_tracker"));
  return state;
}

}  // namespace lockstep::ddp
