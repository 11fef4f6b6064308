// Text from a language model and its tokenizer.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_TEXT_GENERATION_H_
#define LOCKSTEP_MODELS_TRANSFORMER_TEXT_GENERATION_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "lockstep/data/tokens/tokenizer.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/models/transformer/generation.h"

namespace lockstep::models {

// Writes `prompt` to `out`, then the text of each token that Generate() gives, as soon as it is there, and a newline.
//
//   LOCKSTEP_RETURN_IF_ERROR(models::GenerateText(net, *tokenizer, "And God said", {.temperature = 0.8}, std::cout));
//
// An empty prompt is the beginning of a text. If the model's vocabulary is larger than the tokenizer's, its tokens are of
// another one: then their numbers are written. Blocks. Errors are Generate()'s and the tokenizer's.
absl::Status GenerateText(CausalLM& net, const data::Tokenizer& tokenizer, const std::string& prompt,
                          const SamplingOptions& options, std::ostream& out);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_TRANSFORMER_TEXT_GENERATION_H_
