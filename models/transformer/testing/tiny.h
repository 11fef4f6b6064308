// Small models for tests.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_TESTING_TINY_H_
#define LOCKSTEP_MODELS_TRANSFORMER_TESTING_TINY_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "lockstep/models/transformer/config.h"

namespace lockstep::models::testing {

// One of each family, and a Llama with everything that the others do not have.
inline std::vector<CausalLMConfig> TinyConfigs() {
  CausalLMConfig gpt2;
  gpt2.vocab_size = 61;
  gpt2.hidden_size = 32;
  gpt2.num_hidden_layers = 2;
  gpt2.num_attention_heads = 4;
  gpt2.max_position_embeddings = 24;
  gpt2.initializer_range = 0.2;
  std::vector<CausalLMConfig> configs(5, gpt2);
  for (size_t i = 1; i < configs.size(); ++i) {
    configs[i].intermediate_size = 48;
    configs[i].num_key_value_heads = 2;
    configs[i].tie_word_embeddings = i % 2 == 0;
  }
  configs[1].model_type = configs[4].model_type = "llama";
  configs[2].model_type = "qwen2";
  configs[3].model_type = "mistral";
  configs[3].sliding_window = 7;
  configs[4].attention_bias = configs[4].mlp_bias = true;
  configs[4].head_dim = 6;
  configs[4].rope_scaling = RopeScaling{.rope_type = "llama3", .factor = 8, .original_max_position_embeddings = 16};
  return configs;
}

// Tokens of TinyConfigs(), [batch, time].
inline at::Tensor Tokens(int64_t batch, int64_t time, int64_t shift = 0) {
  return at::arange(batch * time).mul(17).add(shift).remainder(61).view({batch, time});
}

// Gives biases and norms other values than the initial 0 and 1. Does not use the default generator, which threads share.
inline void Disturb(torch::nn::Module& net) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net.parameters()) {
    const at::Tensor numbers = at::arange(parameter.numel(), at::kFloat).mul(12.9898).sin().mul(0.2);
    at::Tensor(parameter).copy_(numbers.view(parameter.sizes()) + (parameter.dim() == 1 ? 1 : 0));
  }
}

}  // namespace lockstep::models::testing

#endif  // LOCKSTEP_MODELS_TRANSFORMER_TESTING_TINY_H_
