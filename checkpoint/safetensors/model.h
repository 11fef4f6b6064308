// Saves and loads a whole module as a safetensors file, with tied weights: the format cannot express shared memory, so
// one name of each shared tensor is in the file, and loading fills it under all of them. Python's
// safetensors.torch.save_model and load_model write and read the same files.
//
//   LOCKSTEP_RETURN_IF_ERROR(SaveSafetensorsModel("model.safetensors", *model, {{"format", "pt"}}));
//   LOCKSTEP_RETURN_IF_ERROR(LoadSafetensorsModel("model.safetensors", *model));

#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_MODEL_H_
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_MODEL_H_

#include <torch/nn/module.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"

namespace lockstep::checkpoint {

// Writes StateDict(module). Of the names whose tensors overlap in memory, the first in alphabetical order whose tensor
// has all of the others' elements is kept. The metadata has an entry for each other name, with the kept one, unless `metadata` has
// it already. Errors are SaveSafetensors's. InvalidArgument also: none of the overlapping tensors has all elements.
absl::Status SaveSafetensorsModel(absl::string_view path, const torch::nn::Module& module,
                                  SafetensorsMetadata metadata = {}, const SaveOptions& options = {});

// Loads it into `module`. A name may be missing if the file has another name of its memory, whichever one was kept.
// Errors are LoadSafetensors's and LoadStateDict's, and name `path`.
absl::Status LoadSafetensorsModel(absl::string_view path, torch::nn::Module& module, LoadStateDictOptions options = {},
                                  const LoadOptions& load_options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SAFETENSORS_MODEL_H_
