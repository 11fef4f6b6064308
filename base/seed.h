// Seeds of random numbers that belong to a place in a training.

#ifndef LOCKSTEP_BASE_SEED_H_
#define LOCKSTEP_BASE_SEED_H_

#include <cstdint>

namespace lockstep {

// The seed for, say, example `index` in epoch `epoch` of a run with this seed. Neighbours have unlike seeds, also in
// the lower 32 bits, which are all that LibTorch's generator for the CPU uses.
uint64_t SeedOf(int64_t seed, int64_t epoch, int64_t index);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_SEED_H_
