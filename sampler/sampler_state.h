// A place inside an epoch of a sampler, for checkpoints.

#ifndef LOCKSTEP_SAMPLER_SAMPLER_STATE_H_
#define LOCKSTEP_SAMPLER_SAMPLER_STATE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace lockstep::sampler {

// The source of a shuffled order.
enum class Permutation {
  // TorchPermutation: equals torch.randperm with a CPU generator seeded with seed + epoch, bit for bit. Takes up to 4
  // bytes for each index of the dataset (8 above 2^32 indices), and time in proportion to the part of the order that is
  // used.
  kTorch,
  // FeistelPermutation: an order that Python does not have. Any place can be computed at once. Takes no memory and no
  // set-up.
  kFeistel,
};

// "torch" or "feistel".
absl::string_view PermutationName(Permutation permutation);

// The state is equal on every rank, so the state of one rank suffices, and training may resume on any number of ranks.
struct SamplerState {
  int64_t size = 0;
  int64_t num_replicas = 0;  // The number of ranks that shared the dataset when the state was taken.
  int64_t seed = 0;
  int64_t epoch = 0;
  int64_t consumed = 0;  // Places of the epoch's order that all ranks together have used; `size` at the end.
  bool shuffle = false;
  bool drop_last = false;
  Permutation permutation = Permutation::kTorch;
};

bool operator==(const SamplerState& a, const SamplerState& b);

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_SAMPLER_STATE_H_
