// A sampler's state as a checkpoint's value: a dict of plain values, which Python's torch.load can read too.
//
//   Value checkpoint = Value::Dict({{"model", StateDict(*net)},
//                                   {"sampler", sampler::ToValue(sampler.State(consumed))}});

#ifndef LOCKSTEP_SAMPLER_SAMPLER_STATE_VALUE_H_
#define LOCKSTEP_SAMPLER_SAMPLER_STATE_VALUE_H_

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/sampler/sampler_state.h"

namespace lockstep::sampler {

// Returns a dict whose keys are the names of the fields. `permutation` is a string.
checkpoint::Value ToValue(const SamplerState& state);

// The inverse of ToValue(). NotFound: a key is missing. InvalidArgument: a value has another type, or `permutation` is
// unknown.
absl::StatusOr<SamplerState> ToSamplerState(const checkpoint::Value& value);

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_SAMPLER_STATE_VALUE_H_
