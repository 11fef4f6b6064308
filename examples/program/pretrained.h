// A model that starts from another's parameters.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_

#include <torch/nn/module.h>

#include <string>

#include "absl/status/status.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::examples {

// Loads a .pt file's parameters: it is a state dict, or has one under "state_dict". Keys may begin with "module.", as
// Python's DataParallel and DistributedDataParallel save them. Errors name the file.
absl::Status LoadPretrained(const std::string& path, torch::nn::Module& module);

// The same of a state dict that is loaded already.
absl::Status LoadPossiblyWrapped(torch::nn::Module& module, const checkpoint::Value& state_dict);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_
