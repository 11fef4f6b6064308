#include "lockstep/elastic/internal/fast_hash.h"

#include <string.h>

namespace lockstep::elastic::internal {
namespace {

constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
// Independent sums, which the processor computes at the same time.
constexpr int kLanes = 8;
constexpr size_t kStripe = kLanes * sizeof(uint64_t);

// For each value of one argument, a bijection of the other. A multiplication does not spread the high bits, so they are
// added to the low ones. Then a change of one bit is not undone by a change of one bit in the lane's next word.
uint64_t Mix(uint64_t sum, uint64_t word) {
  const uint64_t x = (sum ^ word) * kOdd;
  return x ^ x >> 32;
}

void AddStripe(const char* data, uint64_t* lanes) {
  uint64_t words[kLanes];
  memcpy(words, data, kStripe);
  for (int i = 0; i < kLanes; ++i) lanes[i] = Mix(lanes[i], words[i]);
}

}  // namespace

uint64_t CombineHashes(uint64_t a, uint64_t b) { return Mix(Mix(kOdd, a), b) * kOdd; }

uint64_t FastHash(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  uint64_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = kOdd * (i + 1);
  size_t at = 0;
  for (; at + kStripe <= size; at += kStripe) AddStripe(bytes + at, lanes);
  if (at < size) {
    char last[kStripe] = {};
    memcpy(last, bytes + at, size - at);
    AddStripe(last, lanes);
  }
  uint64_t hash = size;
  for (const uint64_t lane : lanes) hash = CombineHashes(hash, lane);
  return hash;
}

}  // namespace lockstep::elastic::internal
