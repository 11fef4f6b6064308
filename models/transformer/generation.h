// Text from a language model, token by token.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_GENERATION_H_
#define LOCKSTEP_MODELS_TRANSFORMER_GENERATION_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/models/transformer/causal_lm.h"

namespace lockstep::models {

struct SamplingOptions {
  // Logits are divided by it. 0: the most probable token always, of equal ones the first.
  double temperature = 1;
  // Only this many of the most probable tokens are drawn, and those as probable as the last of them. 0: all.
  int64_t top_k = 0;
  // The most probable of the rest whose probabilities together reach this are drawn (nucleus sampling, Holtzman et al.,
  // arXiv:1904.09751). At least one is. 1: all.
  double top_p = 1;
  uint64_t seed = 0;
  int64_t max_new_tokens = 100;
  // A token that ends the text. It is the last of the result then.
  std::optional<int64_t> stop = std::nullopt;
};

// InvalidArgument: an option is out of range.
absl::Status CheckSampling(const SamplingOptions& options);

// Draws a token from `logits`, [vocab_size]. Requires: CheckSampling() returns OK.
int64_t SampleToken(const at::Tensor& logits, const SamplingOptions& options, at::Generator& random);

// Returns the tokens that follow `prompt`, without it. Calls `on_token` with each.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto tokens, models::Generate(net, prompt, {.temperature = 0.8, .top_k = 50}));
//
// Keys and values of earlier tokens are kept (KVCache). When the text has max_position_embeddings tokens, the last half
// of them becomes the context, and is computed anew. Random numbers come from a new generator, so a seed gives the same text
// on the same machine, and the default generators do not change. The model is in eval mode meanwhile, and
// then in the mode that it was in. Blocks. Of ranks, each may call it by itself.
//
// InvalidArgument: an option is out of range, or the prompt is empty or has a token that is not in the vocabulary. Other
// errors are LibTorch's.
absl::StatusOr<std::vector<int64_t>> Generate(CausalLM& net, std::vector<int64_t> prompt,
                                              const SamplingOptions& options,
                                              const std::function<void(int64_t)>& on_token = nullptr);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_TRANSFORMER_GENERATION_H_
