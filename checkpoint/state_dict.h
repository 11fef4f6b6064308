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

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// An OrderedDict with _metadata, in Python's order: for each module its parameters, its buffers, and then its children.
// Tied weights occur under each of their names and share one storage. Tensors share the module's memory, and training
// changes them: save or clone them before. Buffers for which the module says IsNonPersistent() are left out.
Value StateDict(const torch::nn::Module& module);

// Names as the module has them.
struct LoadedKeys {
  int64_t loaded = 0;                   // tensors of the module that were found and copied
  std::vector<std::string> missing;     // the module has them and the state dict does not
  std::vector<std::string> unexpected;  // the state dict has them and the module does not
};

struct LoadStateDictOptions {
  // True if missing and unexpected keys are errors. A tensor that does not fit is always an error.
  bool strict = true;
  // Removed from the start of keys: "module." for a state dict that Python saved from a DistributedDataParallel. See
  // FindPrefix.
  std::string remove_prefix = {};
  // Keys that are neither copied nor counted as missing, unexpected or mismatched: the module keeps its own tensors.
  // Names without `remove_prefix`, or patterns as the shell has them, whose `*` matches dots too: {"fc.*"}.
  std::vector<std::string> ignored_keys = {};
  // If not null, set to what was loaded and what was not, in order. With `strict = false` a state dict of another model
  // is OK and loads nothing, as in Python: look at `loaded`.
  LoadedKeys* keys = nullptr;
};

// Copies the tensors of `state_dict` into the module's, in place and without gradient. Dtypes and devices may differ,
// shapes may not. `state_dict` is the result of Load, or an entry of it. If anything does not fit, nothing is
// copied, and InvalidArgument names in one line the missing, unexpected and mismatched keys, at most five of each, with
// both shapes for mismatched ones, and the prefix without which more keys would fit. As in Python,
// num_batches_tracked may be missing from a state dict older than that buffer.
absl::Status LoadStateDict(torch::nn::Module& module, const Value& state_dict,
                           const LoadStateDictOptions& options = {});

// The prefix without which most keys fit the module: any sequence of "module." (DataParallel and
// DistributedDataParallel), "_orig_mod." (torch.compile) and "model." (a module around the model, as in Lightning).
// Empty if no more keys fit without a prefix than with it, or `state_dict` is not a dict.
std::string FindPrefix(const torch::nn::Module& module, const Value& state_dict);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_STATE_DICT_H_
