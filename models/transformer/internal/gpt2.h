// GPT-2 (Radford et al., Language Models are Unsupervised Multitask Learners, 2019) without its head.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_GPT2_H_
#define LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_GPT2_H_

#include <memory>

#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/internal/decoder.h"

namespace lockstep::models::internal {

// The module "transformer" of transformers' GPT2LMHeadModel: wte, wpe, h.0, h.1, ..., ln_f. Weights are [in, out], as its
// Conv1D has them. Weights and biases have no values yet. Requires: config.is_gpt2() and CheckConfig() returns OK.
std::shared_ptr<Decoder> MakeGpt2(const CausalLMConfig& config);

}  // namespace lockstep::models::internal

#endif  // LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_GPT2_H_
