#include "lockstep/sampler/sampler_state.h"

#include <tuple>

namespace lockstep::sampler {

absl::string_view PermutationName(Permutation permutation) {
  return permutation == Permutation::kTorch ? "torch" : "feistel";
}

bool operator==(const SamplerState& a, const SamplerState& b) {
  const auto fields = [](const SamplerState& state) {
    return std::tie(state.size, state.num_replicas, state.seed, state.epoch, state.consumed, state.shuffle,
                    state.drop_last, state.permutation);
  };
  return fields(a) == fields(b);
}

}  // namespace lockstep::sampler
