// A sampler's state as a checkpoint's value: a dict of numbers, which Python's torch.load reads too.
//
//   Value checkpoint = Value::Dict({{"model", StateDict(*net)}, {"sampler",
//   sampler::ToValue(sampler.State(consumed))}});

#ifndef LOCKSTEP_SAMPLER_SAMPLER_STATE_VALUE_H_
#define LOCKSTEP_SAMPLER_SAMPLER_STATE_VALUE_H_

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::sampler {

// A dict with the fields' names as keys; permutation is a string.
checkpoint::Value ToValue(const SamplerState& state);

// What ToValue gave. NotFound where a key is missing, InvalidArgument where its value has another type or permutation
// is none that is known.
absl::StatusOr<SamplerState> ToSamplerState(const checkpoint::Value& value);

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_SAMPLER_STATE_VALUE_H_
