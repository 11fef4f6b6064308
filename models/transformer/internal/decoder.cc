#include "lockstep/models/transformer/internal/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <tuple>

#include "lockstep/models/recompute/recompute.h"

namespace lockstep::models::internal {

Weights::Weights(at::IntArrayRef shape, int64_t bias_size, double initial_std) : initial_std(initial_std) {
  weight = register_parameter("weight", at::empty(shape));
  if (bias_size > 0) bias = register_parameter("bias", at::empty({bias_size}));
}

void Weights::Initialize() {
  const at::NoGradGuard no_grad;
  if (initial_std < 0) {
    weight.fill_(1);
  } else {
    weight.normal_(0, initial_std);
  }
  if (bias.defined()) bias.zero_();
}

at::Tensor Linear(const WeightsPtr& weights, const at::Tensor& x) {
  return at::linear(x, weights->weight, weights->bias);
}

at::Tensor Attention(const at::Tensor& q, at::Tensor k, at::Tensor v, const at::Tensor& mask, double dropout,
                     KVCache::Layer* cache) {
  if (cache) std::tie(k, v) = cache->Append(k, v);
  const bool is_causal = !mask.defined() && q.size(2) == k.size(2);
  const std::optional<at::Tensor> given = mask.defined() ? std::optional(mask) : std::nullopt;
  const at::Tensor all = at::scaled_dot_product_attention(q, k, v, given, dropout, is_causal, /*scale=*/std::nullopt,
                                                          /*enable_gqa=*/q.size(1) != k.size(1));
  return all.transpose(1, 2).flatten(2);
}

at::Tensor CausalMask(int64_t time, int64_t past, std::optional<int64_t> window, at::Device device) {
  const int64_t all = past + time;
  const bool whole = !window || all <= *window;
  if (whole && (past == 0 || time == 1)) return {};
  const at::Tensor rows = at::arange(past, all, at::TensorOptions(at::kLong).device(device)).unsqueeze(1);
  const at::Tensor columns = at::arange(all, rows.options()).unsqueeze(0);
  const at::Tensor mask = columns.le(rows);
  return whole ? mask : mask.logical_and(columns.gt(rows - *window));
}

at::Tensor Decoder::RunLayers(at::Tensor x, const Positions& positions, KVCache* cache) const {
  if (cache && cache->layers.empty()) cache->layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::shared_ptr<Layer>& layer = layers_[i];
    const auto run = [layer](const std::vector<at::Tensor>& in) {
      return layer->forward(in[0], {in[1], in[2], in[3]}, nullptr);
    };
    const auto& [mask, cos, sin] = positions;
    x = recompute_ && !cache ? Recompute(run, {x, mask, cos, sin})
                             : layer->forward(x, positions, cache ? &cache->layers[i] : nullptr);
  }
  return x;
}

}  // namespace lockstep::models::internal
