// A small GPT for measurements, as gpt_python.py has it.

#ifndef LOCKSTEP_TOOLS_BENCH_GPT_H_
#define LOCKSTEP_TOOLS_BENCH_GPT_H_

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace lockstep {

struct GptConfig {
  int64_t layers = 12, width = 256, heads = 8, vocabulary = 512, length = 128;
};

struct GptBlockImpl : torch::nn::Module {
  explicit GptBlockImpl(const GptConfig& config)
      : heads(config.heads),
        norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width})))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width})))),
        qkv(register_module("qkv", torch::nn::Linear(config.width, 3 * config.width))),
        out(register_module("out", torch::nn::Linear(config.width, config.width))),
        up(register_module("up", torch::nn::Linear(config.width, 4 * config.width))),
        down(register_module("down", torch::nn::Linear(4 * config.width, config.width))) {}

  at::Tensor forward(at::Tensor x) {
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const std::vector<at::Tensor> parts =
        Apply(qkv, norm1(x)).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    x = x + Apply(out, attended.transpose(1, 2).reshape({batch, length, width}));
    return x + Apply(down, at::gelu(Apply(up, norm2(x)), "tanh"));
  }

  // As Python's nn.Linear computes; torch::nn::Linear rounds otherwise.
  static at::Tensor Apply(const torch::nn::Linear& linear, const at::Tensor& x) {
    return at::linear(x, linear->weight, linear->bias);
  }

  int64_t heads;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, up, down;
};
TORCH_MODULE(GptBlock);

struct GptImpl : torch::nn::Module {
  explicit GptImpl(const GptConfig& config = {})
      : tokens(register_module("tokens", torch::nn::Embedding(config.vocabulary, config.width))),
        places(register_module("places", torch::nn::Embedding(config.length, config.width))),
        blocks(register_module("blocks", torch::nn::Sequential())),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width})))),
        head(register_module("head", torch::nn::Linear(config.width, config.vocabulary))) {
    for (int64_t i = 0; i < config.layers; ++i) blocks->push_back(GptBlock(config));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor embedded = tokens(x) + places(at::arange(x.size(1), x.options()));
    return GptBlockImpl::Apply(head, norm(blocks->forward(embedded)));
  }

  torch::nn::Embedding tokens, places;
  torch::nn::Sequential blocks;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;
};
TORCH_MODULE(Gpt);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_BENCH_GPT_H_
