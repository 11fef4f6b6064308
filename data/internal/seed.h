// The seed of an example's augmentation.

#ifndef LOCKSTEP_DATA_INTERNAL_SEED_H_
#define LOCKSTEP_DATA_INTERNAL_SEED_H_

#include <cstdint>

namespace lockstep::data::internal {

// LibTorch's generator for the CPU uses the lower 32 bits.
uint64_t SeedOf(int64_t seed, int64_t epoch, int64_t index);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_SEED_H_
