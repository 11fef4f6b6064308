// Folders of Hugging Face's transformers: config.json and the weights as safetensors.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_PRETRAINED_H_
#define LOCKSTEP_MODELS_TRANSFORMER_PRETRAINED_H_

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/models/transformer/config.h"

namespace lockstep::models {

// Reads config.json and model.safetensors, or the files that model.safetensors.index.json names, one after the other.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(models::CausalLM net, models::LoadPretrained("/models/gpt2"));
//   Train(net);
//   LOCKSTEP_RETURN_IF_ERROR(models::SavePretrained("/models/mine", *net, net->config()));
//
// Names may lack the prefix "transformer." or "model.", as files of a model without its head do. gpt2's old buffers
// (attn.bias, attn.masked_bias) and Llama's (rotary_emb.inv_freq) are left out. A head beside tied weights must have the
// embedding's bits. `dtype`: the parameters', into which others are converted. Not set: float, and tensors of other
// dtypes are refused. Memory: the model, and the largest file.
//
// Errors begin with the file. InvalidArgument: tensors are missing, unexpected or of another shape or dtype, at most five
// of which are named, or config.json does not fit, see ParseConfig(). DataLoss: a file is damaged. NotFound: a file is
// missing. Other errors are ParseConfig()'s, LoadSafetensors()'s, and the system's.
absl::StatusOr<CausalLM> LoadPretrained(absl::string_view folder, std::optional<at::ScalarType> dtype = std::nullopt);

// Writes a folder that LoadPretrained() and transformers' from_pretrained() read: config.json, and model.safetensors or,
// if the tensors have more than `max_shard_bytes`, model-00001-of-00003.safetensors and so on with
// model.safetensors.index.json. Names, the division into files and their bytes are the ones of save_pretrained().
//
// `net` has the parameters of a CausalLM: it is one, or what a wrapper calls its module. Under fsdp call it within
// FullParameters(), on one rank. Creates the folder if it is missing. Replaces each file in one step, the one that names
// the others last, and then removes weights that an earlier call left under other names. InvalidArgument: parameters are
// not the config's, which is named, or `max_shard_bytes` is not positive. Other errors are SaveSafetensors()'s.
absl::Status SavePretrained(absl::string_view folder, const torch::nn::Module& net, const CausalLMConfig& config,
                            int64_t max_shard_bytes = 5000000000);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_TRANSFORMER_PRETRAINED_H_
