// Initialises a model with the parameters of another.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_

#include <torch/nn/module.h>

#include <string>

#include "absl/status/status.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::examples {

// Loads the parameters of a .pt file, which holds a state dict, or one under "state_dict". Keys may begin with
// the prefixes of wrappers that checkpoint::FindPrefix knows, such as "module." and "_orig_mod.". Every key must fit, so
// the file of another model is an error. Errors name the file.
absl::Status LoadPretrained(const std::string& path, torch::nn::Module& module);

// The same for a state dict that is already loaded.
absl::Status LoadPossiblyWrapped(torch::nn::Module& module, const checkpoint::Value& state_dict);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_
