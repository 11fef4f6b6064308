// The frequencies of rotary positions (Su et al., arXiv:2104.09864).

#ifndef LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_ROPE_H_
#define LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_ROPE_H_

#include <ATen/core/Tensor.h>

#include "lockstep/models/transformer/config.h"

namespace lockstep::models::internal {

// The angle by which each pair of a head's elements turns from one position to the next, float [head size / 2], on
// `device`: inv_freq of transformers' modeling_rope_utils, from the same operators. Requires: CheckConfig() returns OK.
at::Tensor InverseFrequencies(const CausalLMConfig& config, at::Device device);

}  // namespace lockstep::models::internal

#endif  // LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_ROPE_H_
