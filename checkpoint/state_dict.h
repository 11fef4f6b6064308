// Converts a module's parameters and buffers to and from the form of Python's module.state_dict().
//
//   Save("model.pt", StateDict(*model));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, Load("model.pt", {.map_location = "cpu"}));
//   LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(*model, state_dict));
//
// Names equal Python's if the C++ module registers its parts under the names of the Python module.

#ifndef LOCKSTEP_CHECKPOINT_STATE_DICT_H_
#define LOCKSTEP_CHECKPOINT_STATE_DICT_H_

#include <torch/nn/module.h>

#include <string>

#include "absl/status/status.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// An OrderedDict with _metadata, in Python's order: for each module its parameters, its buffers, and then its children.
// Tied weights occur under each of their names and share one storage. Tensors share the module's memory, and training
// changes them: save or clone them before.
Value StateDict(const torch::nn::Module& module);

struct LoadStateDictOptions {
  // Whether missing and unexpected keys are errors. A tensor that does not fit is always an error.
  bool strict = true;
  // Removed from the start of keys: "module." for a state dict that Python saved from a DistributedDataParallel.
  std::string remove_prefix = {};
};

// Copies the tensors of `state_dict` into the module's, in place and without gradient. Dtypes and devices may differ,
// shapes may not. `state_dict` is the result of Load, or an entry of it. If anything does not fit, nothing is
// copied, and InvalidArgument names in one line the missing, unexpected and mismatched keys, at most five of each, with
// both shapes for mismatched ones. As in Python, num_batches_tracked may be missing from a state dict older than that
// buffer.
absl::Status LoadStateDict(torch::nn::Module& module, const Value& state_dict,
                           const LoadStateDictOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_STATE_DICT_H_
