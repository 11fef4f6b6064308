// A shuffled order of any size that needs no memory.

#ifndef LOCKSTEP_SAMPLER_FEISTEL_PERMUTATION_H_
#define LOCKSTEP_SAMPLER_FEISTEL_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace lockstep::sampler {

// An order of [0, size) for each seed and epoch. Every index costs the same time and can be computed without the
// others. An object is smaller than 1 KiB and allocates nothing.
//
//   FeistelPermutation permutation(1000000000, seed, epoch);
//   permutation.Fill(rank, world_size, indices.size(), indices.data());
//
// Indices are cells of a grid of left * right cells. Both sides are close to sqrt(size). A generalised Feistel network
// moves each coordinate in turn by a keyed function of the other. Fewer than `left` cells are unused; if the network
// ends on one, it is applied again (cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA
// 2002). `left` is even, because a shift of an odd number of cells is an even permutation: with both sides odd and no
// unused cell, half of all orders would never occur. splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom
// Number Generators", OOPSLA 2014) derives the keys from seed and epoch.
//
// The order for a size, seed and epoch will never change, because checkpoints depend on it. It is not cryptographically
// secure.
//
// Thread safety: all methods are const.
class FeistelPermutation {
 public:
  // Requires: size is in [1, 2^62].
  FeistelPermutation(int64_t size, int64_t seed, int64_t epoch);

  int64_t size() const { return static_cast<int64_t>(size_); }

  // The index at `position`, which must be in [0, size).
  int64_t operator()(int64_t position) const;

  // Sets out[i] = (*this)(first + i * stride) for i in [0, count). Computes several indices at a time, which is twice
  // as fast.
  void Fill(int64_t first, int64_t stride, int64_t count, int64_t* out) const;

 private:
  static constexpr int kMaxRounds = 48;

  template <int kLanes>
  void Encipher(uint64_t* values) const;

  uint64_t size_;
  uint64_t left_, right_;  // the grid's sides
  int rounds_;
  std::array<uint64_t, kMaxRounds> keys_;
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_FEISTEL_PERMUTATION_H_
