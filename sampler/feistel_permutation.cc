#include "lockstep/sampler/feistel_permutation.h"

#include <algorithm>
#include <cmath>

namespace lockstep::sampler {
namespace {

// The numbers of rounds, from chi-square tests. Larger sizes need fewer. With 12 rounds, the indices of two neighbours
// deviate by 3 standard deviations at 12 indices and a million keys, and are indistinguishable from chance at 16
// indices (with 8 rounds, at 100). With few indices, all orders should be equally likely: at 8 indices, the worst case,
// 16 rounds deviate by 28 standard deviations at a million keys, and 24 rounds by 2. To detect a deviation of 48 rounds
// would need 10^12 keys.
constexpr int kRounds = 12;
constexpr int kRoundsOfFew = 48;
constexpr uint64_t kFew = 256;

// An index takes 18 ns with 12 to 24 of them, 30 ns with 8.
constexpr int kLanesOfFill = 16;

constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;

uint64_t SplitMix64(uint64_t state) {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

// The smallest even number whose square is at least `size`.
uint64_t EvenRoot(uint64_t size) {
  uint64_t root = std::sqrt(static_cast<double>(size));
  while (root * root < size) ++root;
  return root + root % 2;
}

// A number in [0, side), as if drawn by `key` and `other`.
inline uint64_t Shift(uint64_t other, uint64_t key, uint64_t side) {
  uint64_t hash = other * kGamma + key;
  hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93;
  return static_cast<unsigned __int128>(hash) * side >> 64;
}

// `value`, which is below 2 * side, modulo side. Without a branch, which would be mispredicted half of the time.
inline uint64_t Wrap(uint64_t value, uint64_t side) { return std::min(value, value - side); }

}  // namespace

FeistelPermutation::FeistelPermutation(int64_t size, int64_t seed, int64_t epoch)
    : size_(size),
      left_(EvenRoot(size_)),
      right_((size_ + left_ - 1) / left_),
      rounds_(size_ < kFew ? kRoundsOfFew : kRounds) {
  uint64_t state = 0;
  for (const int64_t value : {size, seed, epoch}) state = SplitMix64(state + static_cast<uint64_t>(value) + kGamma);
  for (uint64_t& key : keys_) key = SplitMix64(state += kGamma);
}

// Passes each value through the network once. The lanes are independent, so the processor overlaps them.
template <int kLanes>
inline void FeistelPermutation::Encipher(uint64_t* values) const {
  uint64_t left[kLanes], right[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    left[i] = values[i] % left_;
    right[i] = values[i] / left_;
  }
  for (int round = 0; round < rounds_; round += 2) {
    for (int i = 0; i < kLanes; ++i) left[i] = Wrap(left[i] + Shift(right[i], keys_[round], left_), left_);
    for (int i = 0; i < kLanes; ++i) right[i] = Wrap(right[i] + Shift(left[i], keys_[round + 1], right_), right_);
  }
  for (int i = 0; i < kLanes; ++i) values[i] = right[i] * left_ + left[i];
}

int64_t FeistelPermutation::operator()(int64_t position) const {
  uint64_t value = position;
  do {
    Encipher<1>(&value);
  } while (value >= size_);
  return value;
}

void FeistelPermutation::Fill(int64_t first, int64_t stride, int64_t count, int64_t* out) const {
  int64_t done = 0;
  for (; done + kLanesOfFill <= count; done += kLanesOfFill) {
    uint64_t values[kLanesOfFill];
    for (int i = 0; i < kLanesOfFill; ++i) values[i] = first + (done + i) * stride;
    Encipher<kLanesOfFill>(values);
    for (int i = 0; i < kLanesOfFill; ++i) out[done + i] = values[i] < size_ ? values[i] : (*this)(values[i]);
  }
  for (; done < count; ++done) out[done] = (*this)(first + done * stride);
}

}  // namespace lockstep::sampler
