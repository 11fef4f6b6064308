// The parts that GPT-2 and Llama share.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_DECODER_H_
#define LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_DECODER_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/key_value_cache.h"

namespace lockstep::models::internal {

// A layer's weight and, if it has one, its bias, as the parameters "weight" and "bias". The values are not set.
struct Weights : torch::nn::Module {
  // `initial_std`: the standard deviation of initial weights. Negative: they are 1, as a norm's. `bias` 0: there is none.
  Weights(at::IntArrayRef shape, int64_t bias, double initial_std);

  // Draws the weights from the default generator. The bias becomes 0.
  void Initialize();

  at::Tensor weight, bias;
  const double initial_std;
};
using WeightsPtr = std::shared_ptr<Weights>;

inline constexpr double kNorm = -1;  // initial_std

// torch.nn.functional.linear, which torch::nn::Linear is not in its bits: a matrix product and then an addition.
at::Tensor Linear(const WeightsPtr& weights, const at::Tensor& x);

// Attention of q [batch, heads, time, size] to k and v [batch, kv heads, all, size], before which the cache's come if
// there is one. `mask` is CausalMask()'s. Returns [batch, time, heads * size].
at::Tensor Attention(const at::Tensor& q, at::Tensor k, at::Tensor v, const at::Tensor& mask, double dropout,
                     KVCache::Layer* cache);

// True where one of `time` tokens (rows), of which `past` come before, attends to one of past + time tokens (columns).
// Undefined if that needs no mask: they attend to all before them, and one of the two numbers is 0 or 1.
at::Tensor CausalMask(int64_t time, int64_t past, std::optional<int64_t> window, at::Device device);

// A layer's arguments besides its input. Llama's has all three, and GPT-2's the mask.
struct Positions {
  at::Tensor mask, cos, sin;
};

class Layer : public torch::nn::Module {
 public:
  // [batch, time, hidden] -> [batch, time, hidden].
  virtual at::Tensor forward(const at::Tensor& x, const Positions& positions, KVCache::Layer* cache) = 0;
};

// A model without its head.
class Decoder : public torch::nn::Module {
 public:
  // int64 [batch, time] -> the states before the head, [batch, time, hidden].
  virtual at::Tensor forward(const at::Tensor& ids, KVCache* cache) = 0;
  virtual const at::Tensor& embedding() const = 0;

  void set_recompute(bool recompute) { recompute_ = recompute; }

 protected:
  at::Tensor RunLayers(at::Tensor x, const Positions& positions, KVCache* cache) const;

  std::vector<std::shared_ptr<Layer>> layers_;

 private:
  bool recompute_ = false;
};

}  // namespace lockstep::models::internal

#endif  // LOCKSTEP_MODELS_TRANSFORMER_INTERNAL_DECODER_H_
