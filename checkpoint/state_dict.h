// A module's parameters and buffers as Python's module.state_dict() gives them, and back.
//
//   Save("model.pt", StateDict(*model));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, Load("model.pt", {.map_location = "cpu"}));
//   LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(*model, state_dict));
//
// Names agree with Python's where the C++ module registers its parts under the names that the Python module gives them.

#ifndef LOCKSTEP_CHECKPOINT_STATE_DICT_H_
#define LOCKSTEP_CHECKPOINT_STATE_DICT_H_

#include <torch/nn/module.h>

#include <string>

#include "absl/status/status.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// An OrderedDict with _metadata. In Python's order: of each module its parameters, its buffers, then its children. Tied
// weights stand under each of their names and are one storage. Tensors share the module's memory: training on changes
// them, so Save before, or clone.
Value StateDict(const torch::nn::Module& module);

struct LoadStateDictOptions {
  // Whether missing and unexpected keys are errors. Tensors that do not fit always are.
  bool strict = true;
  // Taken off the keys that begin with it: "module." for what Python saved of a DistributedDataParallel.
  std::string remove_prefix = {};
};

// Copies the tensors of `state_dict` into `module`'s, in place and without gradient; dtype and device may differ,
// shapes may not. `state_dict` is what Load returned, or an entry of it. All or nothing: if anything does not fit
// nothing is copied, and InvalidArgument names in one line, five of each at most, the keys that are missing, unexpected
// and mismatched, the latter with both shapes. As in Python, num_batches_tracked may be missing from a state dict older
// than that buffer.
absl::Status LoadStateDict(torch::nn::Module& module, const Value& state_dict,
                           const LoadStateDictOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_STATE_DICT_H_
