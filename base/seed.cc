#include "lockstep/base/seed.h"

namespace lockstep {
namespace {

// The finalizer of MurmurHash3 (Appleby): every bit of `x` changes every bit of the result.
uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

}  // namespace

uint64_t SeedOf(int64_t seed, int64_t epoch, int64_t index) {
  return Mixed(Mixed(Mixed(static_cast<uint64_t>(seed)) + static_cast<uint64_t>(epoch)) + static_cast<uint64_t>(index));
}

}  // namespace lockstep
