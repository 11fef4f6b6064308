#include "lockstep/models/transformer/key_value_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace lockstep::models {
namespace {

constexpr int64_t kLeastTokens = 64;

// Puts `added` behind the first `length` tokens of `buffer`, which grows if it is full. Returns all of them.
at::Tensor AppendTo(at::Tensor& buffer, int64_t length, const at::Tensor& added) {
  const int64_t total = length + added.size(2);
  if (!buffer.defined() || buffer.size(2) < total) {
    std::vector<int64_t> shape = added.sizes().vec();
    shape[2] = std::max({kLeastTokens, 2 * length, total});
    const at::Tensor larger = at::empty(shape, added.options());
    if (length > 0) larger.narrow(2, 0, length).copy_(buffer.narrow(2, 0, length));
    buffer = larger;
  }
  buffer.narrow(2, length, added.size(2)).copy_(added);
  return buffer.narrow(2, 0, total);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KVCache::Layer::Append(const at::Tensor& keys, const at::Tensor& values) {
  std::pair<at::Tensor, at::Tensor> all(AppendTo(keys_, length_, keys), AppendTo(values_, length_, values));
  length_ += keys.size(2);
  return all;
}

}  // namespace lockstep::models
