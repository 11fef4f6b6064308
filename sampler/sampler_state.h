// A place inside an epoch of a sampler: what a checkpoint holds of it.

#ifndef LOCKSTEP_SAMPLER_SAMPLER_STATE_H_
#define LOCKSTEP_SAMPLER_SAMPLER_STATE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace lockstep::sampler {

// Where a shuffled order comes from.
enum class Permutation {
  // TorchPermutation: torch.randperm with a CPU generator seeded with seed + epoch, bit by bit. Takes up to 4 bytes an
  // index of the dataset (8 above 2^32 of them), and as much time as the part of the order that is used.
  kTorch,
  // FeistelPermutation: an order of our own, of which any place is at hand at once. Takes no memory and no set-up.
  kFeistel,
};

// "torch" or "feistel".
absl::string_view PermutationName(Permutation permutation);

// The same on every rank, so that one rank's serves all, on whatever number of ranks training goes on.
struct SamplerState {
  int64_t size = 0;
  int64_t num_replicas = 0;  // That shared the dataset when it was taken.
  int64_t seed = 0;
  int64_t epoch = 0;
  int64_t consumed = 0;  // Places of the epoch's order that all ranks together have used; size where it is finished.
  bool shuffle = false;
  bool drop_last = false;
  Permutation permutation = Permutation::kTorch;
};

bool operator==(const SamplerState& a, const SamplerState& b);

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_SAMPLER_STATE_H_
