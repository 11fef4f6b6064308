// Initialises a model with the parameters of another.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep::examples {

// Loads the parameters of a .safetensors or a .pt file. A .pt file holds a state dict, or one under "state_dict" or
// "model"; its other entries may hold any objects. Keys may begin with the prefixes of wrappers that
// checkpoint::FindPrefix knows, such as "module." and "_orig_mod.". Every key must fit, so the file of another model is
// an error, but the file's last layer may have another number of classes. Then the module keeps its own last layer.
// Returns the number of classes in the file, or 0 if the last layer was loaded too. Errors name the file.
absl::StatusOr<int64_t> LoadPretrained(const std::string& path, torch::nn::Module& module);

// The last layer's name: the module of the last parameter, such as "fc".
std::string LastLayer(const torch::nn::Module& module);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_PRETRAINED_H_
