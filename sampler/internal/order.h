// The order of one epoch, from any source.

#ifndef LOCKSTEP_SAMPLER_INTERNAL_ORDER_H_
#define LOCKSTEP_SAMPLER_INTERNAL_ORDER_H_

#include <cstdint>
#include <utility>
#include <variant>

#include "lockstep/sampler/feistel_permutation.h"
#include "lockstep/sampler/sampler_state.h"
#include "lockstep/sampler/torch_permutation.h"

namespace lockstep::sampler::internal {

// The indices [0, size), at places [0, size). Construction is immediate; a permutation is computed when its places are
// requested.
class Order {
 public:
  static Order Sequential(int64_t size) { return Order(size, Ascending{}); }
  static Order Shuffled(int64_t size, Permutation permutation, int64_t seed, int64_t epoch);

  // Writes the indices at `count` places first, first + stride, ... A place of at least `size` is taken modulo size.
  // Requires: the first count - 1 places are below 2^63.
  void Fill(uint64_t first, int64_t stride, int64_t count, int64_t* indices);

 private:
  struct Ascending {
    void Fill(int64_t first, int64_t stride, int64_t count, int64_t* indices) const;
  };
  using From = std::variant<Ascending, TorchPermutation, FeistelPermutation>;

  Order(int64_t size, From from) : size_(size), from_(std::move(from)) {}

  int64_t size_;
  From from_;
};

}  // namespace lockstep::sampler::internal

#endif  // LOCKSTEP_SAMPLER_INTERNAL_ORDER_H_
