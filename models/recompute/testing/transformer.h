// A transformer whose layers may be recomputed.

#ifndef LOCKSTEP_MODELS_RECOMPUTE_TESTING_TRANSFORMER_H_
#define LOCKSTEP_MODELS_RECOMPUTE_TESTING_TRANSFORMER_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/options/transformerlayer.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "lockstep/models/recompute/recompute.h"

namespace lockstep::models::testing {

// Encoder layers with dropout, a BatchNorm over the features, and a linear layer that can be left out.
struct TransformerImpl : torch::nn::Module {
  TransformerImpl(int layer_count, int64_t width, int64_t heads, int64_t hidden, bool recompute)
      : recompute(recompute),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        extra(register_module("extra", torch::nn::Linear(width, width))) {
    for (int i = 0; i < layer_count; ++i) {
      layers.push_back(register_module(
          "layer" + std::to_string(i),
          torch::nn::TransformerEncoderLayer(
              torch::nn::TransformerEncoderLayerOptions(width, heads).dim_feedforward(hidden).dropout(0.1))));
    }
  }

  // `x`: [length, batch, width].
  at::Tensor forward(at::Tensor x, bool with_extra = true) {
    for (torch::nn::TransformerEncoderLayer& layer : layers) x = recompute ? Recompute(layer, x) : layer(x);
    const at::Tensor rows = x.flatten(0, 1);
    const at::Tensor normed = recompute ? Recompute(norm, rows) : norm(rows);
    return with_extra ? extra(normed) : normed;
  }

  const bool recompute;
  std::vector<torch::nn::TransformerEncoderLayer> layers;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear extra;
};
TORCH_MODULE(Transformer);

}  // namespace lockstep::models::testing

#endif  // LOCKSTEP_MODELS_RECOMPUTE_TESTING_TRANSFORMER_H_
