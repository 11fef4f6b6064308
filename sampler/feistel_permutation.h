// A shuffled order of any size that takes no memory.

#ifndef LOCKSTEP_SAMPLER_FEISTEL_PERMUTATION_H_
#define LOCKSTEP_SAMPLER_FEISTEL_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace lockstep::sampler {

// One order of [0, size) for each seed and epoch. Any index of it costs the same and needs no other; an object is under
// 1 KiB and allocates nothing.
//
//   FeistelPermutation permutation(1000000000, seed, epoch);
//   permutation.Fill(rank, world_size, indices.size(), indices.data());
//
// Indices lie in a grid of left * right cells, both close to sqrt(size), and a generalised Feistel network moves each
// coordinate in turn by a keyed function of the other. There are fewer than `left` cells too many: where a walk ends on
// one it goes on from there (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). `left` is even,
// because shifts of an odd number of cells are even permutations, and so half of all orders would be missing where
// both sides are odd and no cell is too many. Keys come from seed and epoch by splitmix64 (Steele, Lea and Flood,
// "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
//
// The order of a size, seed and epoch will never change: checkpoints resume by it. It is not meant for secrets.
//
// Thread safety: everything is const.
class FeistelPermutation {
 public:
  // size is in [1, 2^62].
  FeistelPermutation(int64_t size, int64_t seed, int64_t epoch);

  int64_t size() const { return size_; }

  // What is at `position`, which is in [0, size).
  int64_t operator()(int64_t position) const;

  // out[i] = (*this)(first + i * stride) for i in [0, count); several at a time, and so twice as fast.
  void Fill(int64_t first, int64_t stride, int64_t count, int64_t* out) const;

 private:
  static constexpr int kMaxRounds = 48;

  template <int kLanes>
  void Encipher(uint64_t* values) const;

  uint64_t size_;
  uint64_t left_, right_;  // The grid's sides.
  int rounds_;
  std::array<uint64_t, kMaxRounds> keys_;
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_FEISTEL_PERMUTATION_H_
