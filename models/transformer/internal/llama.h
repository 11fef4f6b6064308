// Llama (Touvron et al., arXiv:2302.13971), Qwen2 and Mistral without their heads.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_LLAMA_H_
#define LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_LLAMA_H_

#include <memory>

#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/internal/decoder.h"

namespace lockstep::models::internal {

// The module "model" of transformers' LlamaForCausalLM: embed_tokens, layers.0, layers.1, ..., norm. RMSNorm before each
// part, rotary positions (Su et al., arXiv:2104.09864), grouped-query attention, SwiGLU. Weights and biases have no
// values yet. Requires: !config.is_gpt2() and CheckConfig() returns OK.
std::shared_ptr<Decoder> MakeLlama(const CausalLMConfig& config);

}  // namespace lockstep::models::internal

#endif  // LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_LLAMA_H_
