#include "lockstep/models/transformer/causal_lm.h"

#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/transformer/internal/rope.h"
#include "lockstep/models/transformer/testing/tiny.h"

namespace lockstep::models {
namespace {

using testing::Tokens;
using Tensors = std::vector<at::Tensor>;

CausalLM Make(const CausalLMConfig& config) {
  at::manual_seed(1);
  auto net = MakeCausalLM(config);
  ThrowIfError(net.status());
  testing::Disturb(**net);
  return *net;
}

// Logits and gradients of a training step with dropout.
Tensors Step(CausalLM& net) {
  at::manual_seed(2);
  net->zero_grad();
  Tensors all = {net(Tokens(2, 9))};
  NextTokenLoss(all[0], Tokens(2, 9, 5)).backward();
  for (const at::Tensor& parameter : net->parameters()) all.push_back(parameter.grad().clone());
  return all;
}

bool Same(const Tensors& a, const Tensors& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) same = a[i].equal(b[i]);
  return same;
}

TEST(CausalLM, HasAsManyParametersAsItsConfigSays) {
  for (const CausalLMConfig& config : testing::TinyConfigs()) {
    int64_t count = 0;
    for (const at::Tensor& parameter : Make(config)->parameters()) count += parameter.numel();
    EXPECT_EQ(count, ParameterCount(config)) << config.model_type;
  }
}

TEST(CausalLM, HasTheNamesOfTransformers) {
  CausalLMConfig config = testing::TinyConfigs()[1];
  config.num_hidden_layers = 1;
  std::vector<std::string> names;
  for (const auto& item : Make(config)->named_parameters()) names.push_back(item.key());
  EXPECT_EQ(absl::StrJoin(names, " "),
            "model.embed_tokens.weight model.layers.0.self_attn.q_proj.weight model.layers.0.self_attn.k_proj.weight "
            "model.layers.0.self_attn.v_proj.weight model.layers.0.self_attn.o_proj.weight "
            "model.layers.0.mlp.gate_proj.weight model.layers.0.mlp.up_proj.weight model.layers.0.mlp.down_proj.weight "
            "model.layers.0.input_layernorm.weight model.layers.0.post_attention_layernorm.weight model.norm.weight "
            "lm_head.weight");
}

// transformers 5.24 gives these bits, as inv_freq of its LlamaRotaryEmbedding. Llama 3.1: each fourth of 64.
TEST(CausalLM, HasTheFrequenciesOfTransformers) {
  CausalLMConfig config = testing::TinyConfigs()[1];
  config.head_dim = 128;
  config.rope_theta = 500000;
  config.rope_scaling = RopeScaling{.rope_type = "llama3", .factor = 8};
  const at::Tensor llama3 =
      at::tensor({0x1.0000000p+0F, 0x1.c2ef780p-2F, 0x1.8d27600p-3F, 0x1.5dc95a0p-4F, 0x1.3411900p-5F, 0x1.0f53860p-6F,
                  0x1.ddee9e0p-8F, 0x1.a4ee400p-9F, 0x1.132ba40p-11F, 0x1.46831a0p-14F, 0x1.1f91f00p-15F,
                  0x1.fa8b860p-17F, 0x1.be21880p-18F, 0x1.88ec200p-19F, 0x1.5a0f4e0p-20F, 0x1.30c94e0p-21F});
  const at::Tensor found = internal::InverseFrequencies(config, at::kCPU);
  EXPECT_TRUE(found.slice(0, 0, 64, 4).equal(llama3)) << found;
  config.head_dim = 16;
  config.rope_theta = 10000;
  config.rope_scaling = RopeScaling{.rope_type = "linear", .factor = 3};
  const at::Tensor linear = at::tensor({0x1.5555560p-2F, 0x1.afc19e0p-4F, 0x1.1111120p-5F, 0x1.5967b20p-7F,
                                        0x1.b4e81a0p-9F, 0x1.1452f60p-10F, 0x1.5d867e0p-12F, 0x1.ba1e560p-14F});
  EXPECT_TRUE(internal::InverseFrequencies(config, at::kCPU).equal(linear));
}

TEST(CausalLM, DrawsSmallerWeightsForGpt2sResidualProjections) {
  CausalLMConfig config = testing::TinyConfigs()[0];
  config.hidden_size = 256;
  config.num_hidden_layers = 8;
  at::manual_seed(1);
  const CausalLM net(config);
  const auto parameters = net->named_parameters();
  EXPECT_NEAR(parameters["transformer.h.3.attn.c_attn.weight"].std().item<double>(), 0.2, 0.004);
  EXPECT_NEAR(parameters["transformer.h.3.mlp.c_proj.weight"].std().item<double>(), 0.2 / 4, 0.001);
  EXPECT_TRUE(parameters["transformer.h.3.mlp.c_proj.bias"].eq(0).all().item<bool>());
  EXPECT_TRUE(parameters["transformer.ln_f.weight"].eq(1).all().item<bool>());
}

TEST(CausalLM, LooksOnlyBack) {
  for (const CausalLMConfig& config : testing::TinyConfigs()) {
    CausalLM net = Make(config);
    at::Tensor ids = Tokens(2, 9);
    const at::Tensor logits = net(ids);
    ids.select(1, 6).fill_(3);
    const at::Tensor others = net(ids);
    EXPECT_TRUE(at::allclose(others.narrow(1, 0, 6), logits.narrow(1, 0, 6), 1e-5, 1e-5)) << config.model_type;
    EXPECT_FALSE(at::allclose(others.select(1, 6), logits.select(1, 6), 1e-2, 1e-2)) << config.model_type;
  }
}

TEST(CausalLM, ForgetsWhatIsBehindASlidingWindow) {
  CausalLMConfig config = testing::TinyConfigs()[3];
  config.num_hidden_layers = 1;
  CausalLM net = Make(config);
  at::Tensor ids = Tokens(1, 9);
  const at::Tensor logits = net(ids);
  ids.select(1, 0).fill_(3);
  const at::Tensor difference = (net(ids) - logits).abs().amax({0, 2});  // by position
  EXPECT_GT(difference[6].item<double>(), 1e-3);
  EXPECT_LT(difference[7].item<double>(), 1e-6);
}

TEST(CausalLM, GivesTheSameBitsWithRecompute) {
  for (CausalLMConfig config : testing::TinyConfigs()) {
    config.attention_dropout = 0.1;
    if (config.is_gpt2()) config.embd_pdrop = config.resid_pdrop = 0.2;
    CausalLM net = Make(config);
    const Tensors expected = Step(net);
    EXPECT_TRUE(Same(Step(net), expected));
    net->set_recompute(true);
    EXPECT_TRUE(Same(Step(net), expected)) << config.model_type;
  }
}

TEST(CausalLM, ClonesWithoutRandomNumbers) {
  for (const CausalLMConfig& config : testing::TinyConfigs()) {
    CausalLM net = Make(config);
    net->eval();
    net->parameters()[1].set_requires_grad(false);
    at::manual_seed(3);
    const double expected = at::rand({}).item<double>();
    at::manual_seed(3);
    const auto copy = std::dynamic_pointer_cast<CausalLMImpl>(net->clone());
    EXPECT_EQ(at::rand({}).item<double>(), expected);
    EXPECT_FALSE(copy->is_training());
    EXPECT_FALSE(copy->parameters()[1].requires_grad());
    EXPECT_TRUE(copy->forward(Tokens(2, 5)).equal(net(Tokens(2, 5))));
    const at::NoGradGuard no_grad;
    copy->parameters()[0].zero_();
    EXPECT_FALSE(copy->forward(Tokens(2, 5)).equal(net(Tokens(2, 5))));
  }
}

TEST(CausalLM, ComputesInBFloat16) {
  for (const CausalLMConfig& config : testing::TinyConfigs()) {
    CausalLM net = Make(config);
    const at::Tensor logits = net(Tokens(2, 9));
    net->to(at::kBFloat16);
    const at::Tensor rounded = net(Tokens(2, 9));
    EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
    EXPECT_LT((rounded - logits).norm().item<double>(), 0.1 * logits.norm().item<double>()) << config.model_type;
  }
}

TEST(CausalLM, ContinuesFromACache) {
  for (const CausalLMConfig& config : testing::TinyConfigs()) {
    CausalLM net = Make(config);
    const at::Tensor ids = Tokens(2, 20), logits = net(ids);
    KVCache cache;
    int64_t seen = 0;
    for (const int64_t count : {5, 1, 1, 8, 3, 1, 1}) {
      const at::Tensor next = net->Next(ids.narrow(1, seen, count), &cache);
      seen += count;
      EXPECT_EQ(cache.length(), seen);
      EXPECT_FALSE(next.requires_grad());
      EXPECT_TRUE(at::allclose(next, logits.select(1, seen - 1), 1e-4, 1e-5)) << config.model_type << seen;
    }
  }
}

TEST(CausalLM, NamesTokensThatDoNotFit) {
  CausalLM net = Make(testing::TinyConfigs()[0]);
  EXPECT_EQ(TorchStatus("", [&] { net(Tokens(1, 25)); }).message(),
            "tokens: expected at most max_position_embeddings, 24, found 25");
  EXPECT_EQ(TorchStatus("", [&] { net(Tokens(1, 5).to(at::kFloat)); }).message(),
            "tokens: expected int64 [batch, time], found Float [1, 5]");
  EXPECT_EQ(TorchStatus("", [&] { net(Tokens(1, 5) + 60); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MakeCausalLM({"gpt3"}).status().message(),
            "model_type is \"gpt3\", expected gpt2, llama, qwen2 or mistral");
}

TEST(NextTokenLoss, LeavesIgnoredTargetsOut) {
  const at::Tensor logits = at::arange(24, at::kFloat).sin().view({2, 3, 4});
  const at::Tensor targets = at::tensor({1, -100, 3, -100, -100, 0}, at::kLong).view({2, 3});
  const at::Tensor logs = logits.log_softmax(-1);
  const double expected = -(logs[0][0][1] + logs[0][2][3] + logs[1][2][0]).item<double>() / 3;
  EXPECT_NEAR(NextTokenLoss(logits, targets).item<double>(), expected, 1e-6);
  EXPECT_TRUE(std::isnan(NextTokenLoss(logits, at::full({2, 3}, -100, at::kLong)).item<double>()));
}

}  // namespace
}  // namespace lockstep::models
