#include "lockstep/models/transformer/internal/gpt2.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>

#include <cmath>
#include <string>
#include <vector>

namespace lockstep::models::internal {
namespace {

WeightsPtr Norm(const CausalLMConfig& config) {
  const int64_t hidden = config.hidden_size;
  return std::make_shared<Weights>(at::IntArrayRef{hidden}, hidden, kNorm);
}

WeightsPtr Conv1D(int64_t in, int64_t out, double std) {
  return std::make_shared<Weights>(at::IntArrayRef{in, out}, out, std);
}

// The deviation for projections whose results are added to the residual stream.
double ResidualStd(const CausalLMConfig& config) {
  return config.initializer_range / std::sqrt(2.0 * config.num_hidden_layers);
}

at::Tensor LayerNorm(const WeightsPtr& norm, const at::Tensor& x, double eps) {
  return at::layer_norm(x, norm->weight.sizes(), norm->weight, norm->bias, eps);
}

at::Tensor Apply(const WeightsPtr& conv, const at::Tensor& x) {
  const at::Tensor rows = at::addmm(conv->bias, x.flatten(0, -2), conv->weight);
  return rows.view({x.size(0), x.size(1), -1});
}

class Gpt2Attention : public torch::nn::Module {
 public:
  explicit Gpt2Attention(const CausalLMConfig& config)
      : config_(config),
        c_attn_(
            register_module("c_attn", Conv1D(config.hidden_size, 3 * config.hidden_size, config.initializer_range))),
        c_proj_(register_module("c_proj", Conv1D(config.hidden_size, config.hidden_size, ResidualStd(config)))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask, KVCache::Layer* cache) {
    std::vector<at::Tensor> qkv = Apply(c_attn_, x).split(config_.hidden_size, 2);
    for (at::Tensor& part : qkv)
      part = part.view({x.size(0), x.size(1), config_.num_attention_heads, config_.head_size()}).transpose(1, 2);
    const double dropout = is_training() ? config_.attention_dropout : 0;
    const at::Tensor attended = Attention(qkv[0], qkv[1], qkv[2], mask, dropout, cache);
    return at::dropout(Apply(c_proj_, attended), config_.resid_pdrop, is_training());
  }

 private:
  const CausalLMConfig config_;
  WeightsPtr c_attn_, c_proj_;
};

class Gpt2Mlp : public torch::nn::Module {
 public:
  explicit Gpt2Mlp(const CausalLMConfig& config)
      : dropout_(config.resid_pdrop),
        c_fc_(register_module("c_fc", Conv1D(config.hidden_size, config.inner_size(), config.initializer_range))),
        c_proj_(register_module("c_proj", Conv1D(config.inner_size(), config.hidden_size, ResidualStd(config)))) {}

  at::Tensor forward(const at::Tensor& x) {
    return at::dropout(Apply(c_proj_, at::gelu(Apply(c_fc_, x), "tanh")), dropout_, is_training());
  }

 private:
  const double dropout_;
  WeightsPtr c_fc_, c_proj_;
};

class Gpt2Layer : public Layer {
 public:
  explicit Gpt2Layer(const CausalLMConfig& config)
      : eps_(config.norm_eps),
        ln_1_(register_module("ln_1", Norm(config))),
        attn_(register_module("attn", std::make_shared<Gpt2Attention>(config))),
        ln_2_(register_module("ln_2", Norm(config))),
        mlp_(register_module("mlp", std::make_shared<Gpt2Mlp>(config))) {}

  at::Tensor forward(const at::Tensor& x, const Positions& positions, KVCache::Layer* cache) override {
    const at::Tensor y = attn_->forward(LayerNorm(ln_1_, x, eps_), positions.mask, cache) + x;
    return y + mlp_->forward(LayerNorm(ln_2_, y, eps_));
  }

 private:
  const double eps_;
  WeightsPtr ln_1_;
  std::shared_ptr<Gpt2Attention> attn_;
  WeightsPtr ln_2_;
  std::shared_ptr<Gpt2Mlp> mlp_;
};

class Gpt2 : public Decoder {
 public:
  explicit Gpt2(const CausalLMConfig& config) : config_(config) {
    const int64_t hidden = config.hidden_size;
    const double std = config.initializer_range;
    wte_ = register_module("wte", std::make_shared<Weights>(at::IntArrayRef{config.vocab_size, hidden}, 0, std));
    wpe_ = register_module("wpe",
                           std::make_shared<Weights>(at::IntArrayRef{config.max_position_embeddings, hidden}, 0, std));
    const auto h = register_module("h", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < config.num_hidden_layers; ++i)
      layers_.push_back(h->register_module(std::to_string(i), std::make_shared<Gpt2Layer>(config)));
    ln_f_ = register_module("ln_f", Norm(config));
  }

  at::Tensor forward(const at::Tensor& ids, KVCache* cache) override {
    const int64_t time = ids.size(1), past = cache ? cache->length() : 0;
    const at::Tensor positions = at::arange(past, past + time, ids.options()).unsqueeze(0);
    at::Tensor x = at::embedding(wte_->weight, ids) + at::embedding(wpe_->weight, positions);
    x = at::dropout(x, config_.embd_pdrop, is_training());
    x = RunLayers(x, {CausalMask(time, past, std::nullopt, ids.device()), {}, {}}, cache);
    return LayerNorm(ln_f_, x, config_.norm_eps);
  }

  const at::Tensor& embedding() const override { return wte_->weight; }

 private:
  const CausalLMConfig config_;
  WeightsPtr wte_, wpe_, ln_f_;
};

}  // namespace

std::shared_ptr<Decoder> MakeGpt2(const CausalLMConfig& config) { return std::make_shared<Gpt2>(config); }

}  // namespace lockstep::models::internal
