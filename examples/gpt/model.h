// The model of the programs in this folder, and text from it.

#ifndef LOCKSTEP_EXAMPLES_GPT_MODEL_H_
#define LOCKSTEP_EXAMPLES_GPT_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/data/tokens/tokenizer.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/generation.h"

namespace lockstep::examples {

// The configuration in `folder`, one of Hugging Face's. No folder: that of a small GPT-2 for the tokenizer. FlagError:
// the model takes fewer than `block` tokens.
absl::StatusOr<models::CausalLMConfig> ConfigOf(const std::string& folder, const data::Tokenizer& tokenizer,
                                                int64_t block);

// The model in `folder`, converted to float, or, if there are no weights in it, a new one.
absl::StatusOr<models::CausalLM> ModelOf(const std::string& folder, const models::CausalLMConfig& config);

// The model that a training has saved: `path` is a folder with config.json and weights, or a file step_*.pt.
absl::StatusOr<models::CausalLM> TrainedModel(const std::string& path);

// Prints `prompt` and what the model writes behind it: text, or, if the vocabulary is larger than the tokenizer's, the
// numbers of tokens.
absl::Status PrintText(models::CausalLM& net, const data::Tokenizer& tokenizer, const std::string& prompt,
                       const models::SamplingOptions& options);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_GPT_MODEL_H_
