#include "lockstep/sampler/sampler_state_value.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::sampler {

using checkpoint::GetBool;
using checkpoint::GetInt;
using checkpoint::Value;

Value ToValue(const SamplerState& state) {
  return Value::Dict({{"size", state.size},
                      {"num_replicas", state.num_replicas},
                      {"seed", state.seed},
                      {"epoch", state.epoch},
                      {"consumed", state.consumed},
                      {"shuffle", state.shuffle},
                      {"drop_last", state.drop_last},
                      {"permutation", std::string(PermutationName(state.permutation))}});
}

absl::StatusOr<SamplerState> ToSamplerState(const Value& value) {
  SamplerState state;
  LOCKSTEP_ASSIGN_OR_RETURN(state.size, GetInt(value, "size"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.num_replicas, GetInt(value, "num_replicas"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.seed, GetInt(value, "seed"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.epoch, GetInt(value, "epoch"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.consumed, GetInt(value, "consumed"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.shuffle, GetBool(value, "shuffle"));
  LOCKSTEP_ASSIGN_OR_RETURN(state.drop_last, GetBool(value, "drop_last"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string permutation, checkpoint::GetString(value, "permutation"));
  for (const Permutation known : {Permutation::kTorch, Permutation::kFeistel}) {
    state.permutation = known;
    if (permutation == PermutationName(known)) return state;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("permutation: expected \"torch\" or \"feistel\", found \"", permutation, "\""));
}

}  // namespace lockstep::sampler
