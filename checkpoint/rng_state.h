// The states of LibTorch's default random generators. With them a run resumed from a checkpoint draws the same numbers
// as without the interruption.
//
//   Value state = Value::Dict({{"rng", *RngState()}});
//   LOCKSTEP_RETURN_IF_ERROR(SetRngState(*state.Find("rng")));
//
// Generators that a program created, such as a data loader's, are not included.

#ifndef LOCKSTEP_CHECKPOINT_RNG_STATE_H_
#define LOCKSTEP_CHECKPOINT_RNG_STATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}; "cuda" only if the program has CUDA.
absl::StatusOr<Value> RngState();

// Sets every generator in `state`. InvalidArgument: `state` is not from RngState. FailedPrecondition: it has more CUDA
// devices than the program. Generators before the failed one are set.
absl::Status SetRngState(const Value& state);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_RNG_STATE_H_
