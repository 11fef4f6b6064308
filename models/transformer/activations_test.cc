// The bytes that autograd keeps of a layer, beside the formulas of tools/bench/transformer_memory.py.

#include <ATen/ATen.h>
#include <torch/utils.h>

#include <cstdint>
#include <iostream>

#include "gtest/gtest.h"
#include "lockstep/base/testing/counting_allocator.h"
#include "lockstep/models/transformer/causal_lm.h"

namespace lockstep::models {
namespace {

using lockstep::testing::CountingAllocator;

constexpr int64_t kTokens = 256, kHidden = 128, kInner = 512;

// The bytes of tensors that a loss keeps.
int64_t Kept(CausalLMConfig config, int64_t layers, bool recompute) {
  config.num_hidden_layers = layers;
  CausalLM net = MakeCausalLM(config).value();
  net->set_recompute(recompute);
  const at::Tensor ids = at::zeros({1, kTokens}, at::kLong);
  NextTokenLoss(net->forward(ids), ids).backward();  // what is made once
  const int64_t before = CountingAllocator::bytes();
  const at::Tensor loss = NextTokenLoss(net->forward(ids), ids);
  return CountingAllocator::bytes() - before;
}

// Floats for each token of one more layer.
double Floats(const CausalLMConfig& config, bool recompute) {
  CountingAllocator::Install();
  const int64_t bytes = Kept(config, 3, recompute) - Kept(config, 2, recompute);
  return static_cast<double>(bytes) / (4 * kTokens);
}

TEST(Activations, ALayerOfGpt2KeepsEightTimesItsWidthAndTwiceTheInnerOne) {
  CausalLMConfig config;
  config.vocab_size = 100;
  config.hidden_size = kHidden;
  config.num_attention_heads = 4;
  const double floats = Floats(config, false), recomputed = Floats(config, true);
  std::cout << floats / kHidden << " and, recomputed, " << recomputed / kHidden << " times the width\n";
  EXPECT_NEAR(floats, 8 * kHidden + 2 * kInner, 0.05 * floats);
  EXPECT_NEAR(recomputed, kHidden, 0.05 * kHidden);
}

TEST(Activations, ALayerOfLlamaKeepsFourTimesTheInnerWidth) {
  CausalLMConfig config;
  config.model_type = "llama";
  config.vocab_size = 100;
  config.hidden_size = kHidden;
  config.intermediate_size = kInner;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  const double floats = Floats(config, false), recomputed = Floats(config, true);
  std::cout << floats / kHidden << " and, recomputed, " << recomputed / kHidden << " times the width\n";
  EXPECT_NEAR(floats, (8 + 2 * 0.5) * kHidden + 4 * kInner, 0.05 * floats);
  EXPECT_NEAR(recomputed, kHidden, 0.05 * kHidden);
}

}  // namespace
}  // namespace lockstep::models
