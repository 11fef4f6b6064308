#include "lockstep/sampler/internal/order.h"

#include <algorithm>

namespace lockstep::sampler::internal {

Order Order::Shuffled(int64_t size, Permutation permutation, int64_t seed, int64_t epoch) {
  if (size == 0) return Sequential(0);  // a permutation has an index or more
  if (permutation == Permutation::kFeistel) return Order(size, FeistelPermutation(size, seed, epoch));
  // Unsigned, like the seed of a generator. Python's negative seeds wrap around in the same way.
  return Order(size, TorchPermutation(size, static_cast<uint64_t>(seed) + static_cast<uint64_t>(epoch)));
}

void Order::Ascending::Fill(int64_t first, int64_t stride, int64_t count, int64_t* indices) const {
  for (int64_t i = 0; i < count; ++i) indices[i] = first + i * stride;
}

void Order::Fill(uint64_t first, int64_t stride, int64_t count, int64_t* indices) {
  const auto fill = [&](int64_t place, int64_t number, int64_t* to) {
    std::visit([&](auto& from) { from.Fill(place, stride, number, to); }, from_);
  };
  const uint64_t size = size_;
  int64_t inside = 0;
  if (first < size) inside = std::min<int64_t>(count, (size - first - 1) / stride + 1);
  if (inside > 0) fill(first, inside, indices);
  for (int64_t i = inside; i < count; ++i) fill((first + static_cast<uint64_t>(i) * stride) % size, 1, indices + i);
}

}  // namespace lockstep::sampler::internal
