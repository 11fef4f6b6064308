// Loads a sharded checkpoint whole, into one process, whoever wrote it: for looking into it, converting it, or training
// on without sharding.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value state, LoadWhole("/data/step_1000"));
//   LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(*model, *state.Find("model")));
//   LOCKSTEP_RETURN_IF_ERROR(Save("step_1000.pt", state));

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_LOAD_WHOLE_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_LOAD_WHOLE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// The nested state dict that was saved, every tensor put together. It takes the memory of all tensors and of the
// largest part. Tensors go to options.map_location of the CPU, from where all were saved.
//
// Errors are LoadSharded's; DataLoss also where the items' paths contradict each other.
absl::StatusOr<Value> LoadWhole(absl::string_view directory, const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_LOAD_WHOLE_H_
