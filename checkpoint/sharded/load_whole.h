// Loads a whole sharded checkpoint into one process, however many ranks wrote it: to inspect it, convert it, or
// continue without sharding.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value state, LoadWhole("/data/step_1000"));
//   LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(*model, *state.Find("model")));
//   LOCKSTEP_RETURN_IF_ERROR(Save("step_1000.pt", state));

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_LOAD_WHOLE_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_LOAD_WHOLE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// Returns the nested state dict that was saved, with every tensor assembled. Memory: all tensors and the largest part.
// options.map_location is applied to the CPU for all tensors.
//
// With `below`, only the items below this path are read, and their part of the state dict is returned:
// LoadWhole(directory, {}, "model") is {"weight": ...}. NotFound: the checkpoint has no item there; the error names the
// parts that it has.
//
// Returns the errors of LoadSharded. DataLoss also: the paths of the items contradict each other.
absl::StatusOr<Value> LoadWhole(absl::string_view directory, const LoadOptions& options = {},
                                const KeyPath& below = KeyPath(std::vector<Value>()));

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_LOAD_WHOLE_H_
