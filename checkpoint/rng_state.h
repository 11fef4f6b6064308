// The states of LibTorch's default random generators, so that a run that goes on from a checkpoint draws what it would
// have drawn.
//
//   Value state = Value::Dict({{"rng", *RngState()}});
//   LOCKSTEP_RETURN_IF_ERROR(SetRngState(*state.Find("rng")));
//
// Generators that a program made itself, such as a data loader's, are its own to keep.

#ifndef LOCKSTEP_CHECKPOINT_RNG_STATE_H_
#define LOCKSTEP_CHECKPOINT_RNG_STATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}; "cuda" only where the program has CUDA.
absl::StatusOr<Value> RngState();

// Sets every generator that `state` names. InvalidArgument: `state` is not what RngState gives. FailedPrecondition: it
// has more CUDA devices than the program. Generators named before the one in error are set.
absl::Status SetRngState(const Value& state);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_RNG_STATE_H_
