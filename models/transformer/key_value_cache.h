// The keys and values of the tokens that a model has seen, for generation.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_KEY_VALUE_CACHE_H_
#define LOCKSTEP_MODELS_TRANSFORMER_KEY_VALUE_CACHE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::models {

// An empty one begins a text. CausalLMImpl::Next() fills it. Memory: 2 * layers * kv heads * head size elements for each
// token of each row, and up to twice that, as it grows by doubling. After an exception, begin with an empty one.
struct KVCache {
  class Layer {
   public:
    // Adds [batch, kv heads, time, head size] behind the ones that are there. Returns the keys and the values of all
    // tokens, as views that are valid until the next call. Requires: no gradients.
    std::pair<at::Tensor, at::Tensor> Append(const at::Tensor& keys, const at::Tensor& values);

    int64_t length() const { return length_; }

   private:
    at::Tensor keys_, values_;  // with room for more tokens
    int64_t length_ = 0;
  };

  // The number of tokens seen: the position of the next one.
  int64_t length() const { return layers.empty() ? 0 : layers.front().length(); }

  std::vector<Layer> layers;
};

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_TRANSFORMER_KEY_VALUE_CACHE_H_
