#include "lockstep/models/transformer/internal/llama.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/transformer/internal/rope.h"

namespace lockstep::models::internal {
namespace {

WeightsPtr Norm(const CausalLMConfig& config) {
  return std::make_shared<Weights>(at::IntArrayRef{config.hidden_size}, 0, kNorm);
}

WeightsPtr Projection(const CausalLMConfig& config, int64_t in, int64_t out, bool bias) {
  return std::make_shared<Weights>(at::IntArrayRef{out, in}, bias ? out : 0, config.initializer_range);
}

at::Tensor RmsNorm(const WeightsPtr& norm, const at::Tensor& x, double eps) {
  return at::rms_norm(x, norm->weight.sizes(), norm->weight, eps);
}

// The angles' cosines and sines, [time, head size], in x's dtype.
std::pair<at::Tensor, at::Tensor> Rotations(const CausalLMConfig& config, const at::Tensor& x, int64_t past) {
  const at::Tensor frequencies = InverseFrequencies(config, x.device());
  const at::Tensor angles = at::arange(past, past + x.size(1), frequencies.options()).unsqueeze(1) * frequencies;
  const at::Tensor both = at::cat({angles, angles}, -1);
  return {both.cos().to(x.dtype()), both.sin().to(x.dtype())};
}

at::Tensor Rotate(const at::Tensor& x, const Positions& positions) {
  const std::vector<at::Tensor> halves = x.split(x.size(-1) / 2, -1);
  return (x * positions.cos) + (at::cat({-halves[1], halves[0]}, -1) * positions.sin);
}

class LlamaAttention : public torch::nn::Module {
 public:
  explicit LlamaAttention(const CausalLMConfig& config) : config_(config) {
    const int64_t hidden = config.hidden_size, size = config.head_size();
    const int64_t q = config.num_attention_heads * size, kv = config.kv_heads() * size;
    const bool bias = config.attention_bias || config.model_type == "qwen2";
    q_proj_ = register_module("q_proj", Projection(config, hidden, q, bias));
    k_proj_ = register_module("k_proj", Projection(config, hidden, kv, bias));
    v_proj_ = register_module("v_proj", Projection(config, hidden, kv, bias));
    o_proj_ = register_module("o_proj", Projection(config, q, hidden, config.attention_bias));
  }

  at::Tensor forward(const at::Tensor& x, const Positions& positions, KVCache::Layer* cache) {
    const at::Tensor q = Rotate(Heads(q_proj_, x), positions), k = Rotate(Heads(k_proj_, x), positions);
    const double dropout = is_training() ? config_.attention_dropout : 0;
    return Linear(o_proj_, Attention(q, k, Heads(v_proj_, x), positions.mask, dropout, cache));
  }

 private:
  // [batch, time, hidden] -> [batch, heads, time, head size].
  at::Tensor Heads(const WeightsPtr& projection, const at::Tensor& x) const {
    return Linear(projection, x).view({x.size(0), x.size(1), -1, config_.head_size()}).transpose(1, 2);
  }

  const CausalLMConfig config_;
  WeightsPtr q_proj_, k_proj_, v_proj_, o_proj_;
};

class LlamaMlp : public torch::nn::Module {
 public:
  explicit LlamaMlp(const CausalLMConfig& config) {
    const int64_t hidden = config.hidden_size, inner = config.inner_size();
    gate_proj_ = register_module("gate_proj", Projection(config, hidden, inner, config.mlp_bias));
    up_proj_ = register_module("up_proj", Projection(config, hidden, inner, config.mlp_bias));
    down_proj_ = register_module("down_proj", Projection(config, inner, hidden, config.mlp_bias));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor gate = at::silu(Linear(gate_proj_, x));
    return Linear(down_proj_, gate * Linear(up_proj_, x));
  }

 private:
  WeightsPtr gate_proj_, up_proj_, down_proj_;
};

class LlamaLayer : public Layer {
 public:
  explicit LlamaLayer(const CausalLMConfig& config)
      : eps_(config.norm_eps),
        self_attn_(register_module("self_attn", std::make_shared<LlamaAttention>(config))),
        mlp_(register_module("mlp", std::make_shared<LlamaMlp>(config))),
        input_layernorm_(register_module("input_layernorm", Norm(config))),
        post_attention_layernorm_(register_module("post_attention_layernorm", Norm(config))) {}

  at::Tensor forward(const at::Tensor& x, const Positions& positions, KVCache::Layer* cache) override {
    const at::Tensor y = x + self_attn_->forward(RmsNorm(input_layernorm_, x, eps_), positions, cache);
    return y + mlp_->forward(RmsNorm(post_attention_layernorm_, y, eps_));
  }

 private:
  const double eps_;
  std::shared_ptr<LlamaAttention> self_attn_;
  std::shared_ptr<LlamaMlp> mlp_;
  WeightsPtr input_layernorm_, post_attention_layernorm_;
};

class Llama : public Decoder {
 public:
  explicit Llama(const CausalLMConfig& config) : config_(config) {
    const std::vector<int64_t> shape = {config.vocab_size, config.hidden_size};
    embed_tokens_ = register_module("embed_tokens", std::make_shared<Weights>(shape, 0, config.initializer_range));
    const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < config.num_hidden_layers; ++i)
      layers_.push_back(layers->register_module(std::to_string(i), std::make_shared<LlamaLayer>(config)));
    norm_ = register_module("norm", Norm(config));
  }

  at::Tensor forward(const at::Tensor& ids, KVCache* cache) override {
    const int64_t past = cache ? cache->length() : 0;
    const at::Tensor x = at::embedding(embed_tokens_->weight, ids);
    const auto [cos, sin] = Rotations(config_, x, past);
    const at::Tensor mask = CausalMask(ids.size(1), past, config_.sliding_window, ids.device());
    return RmsNorm(norm_, RunLayers(x, {mask, cos, sin}, cache), config_.norm_eps);
  }

  const at::Tensor& embedding() const override { return embed_tokens_->weight; }

 private:
  const CausalLMConfig config_;
  WeightsPtr embed_tokens_, norm_;
};

}  // namespace

std::shared_ptr<Decoder> MakeLlama(const CausalLMConfig& config) { return std::make_shared<Llama>(config); }

}  // namespace lockstep::models::internal
