// The configuration of a language model, as config.json of Hugging Face's transformers has it.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_CONFIG_H_
#define LOCKSTEP_MODELS_TRANSFORMER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::models {

// Rotary positions for longer texts than the model was first trained for.
struct RopeScaling {
  // "linear": all frequencies are divided by the factor. "llama3", of Llama 3.1 to 3.3: low ones are.
  std::string rope_type;
  double factor = 1;
  // llama3's: waves longer than original_max_position_embeddings / low_freq_factor have a low frequency, and waves shorter
  // than the quotient by high_freq_factor a high one.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

// Fields have the names that Llama's have in transformers, for each family. The defaults are the smallest GPT-2 without
// dropout: 124 million parameters.
//
//   models::CausalLMConfig config = {.hidden_size = 384, .num_hidden_layers = 6, .num_attention_heads = 6};
//   LOCKSTEP_ASSIGN_OR_RETURN(const models::CausalLM net, models::MakeCausalLM(config));
struct CausalLMConfig {
  // "gpt2", "llama", "qwen2" or "mistral".
  std::string model_type = "gpt2";
  int64_t vocab_size = 50257;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  // Fewer than num_attention_heads: grouped-query attention. 0: as many. gpt2 has as many always.
  int64_t num_key_value_heads = 0;
  // 0: hidden_size / num_attention_heads. gpt2 has no other.
  int64_t head_dim = 0;
  // gpt2's n_inner. 0: 4 * hidden_size.
  int64_t intermediate_size = 0;
  // The longest sequence. gpt2 has an embedding for each position, and takes no longer one. The others do, but were not
  // trained for it.
  int64_t max_position_embeddings = 1024;
  // layer_norm_epsilon or rms_norm_eps.
  double norm_eps = 1e-5;
  // Not gpt2's, as the next.
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling = std::nullopt;
  // mistral's: a token attends to this many, itself among them. Not set: to all before it.
  std::optional<int64_t> sliding_window = std::nullopt;
  // True if the head's weight is the embedding's.
  bool tie_word_embeddings = true;
  // The standard deviation of initial weights.
  double initializer_range = 0.02;
  // Probabilities of dropout in training. gpt2 calls the first attn_pdrop, and only gpt2 has the others.
  double attention_dropout = 0;
  double embd_pdrop = 0;
  double resid_pdrop = 0;
  // "gelu_new" or "gelu_pytorch_tanh" for gpt2, which are the same function. "silu" for the others. Empty: the family's.
  std::string activation = {};
  // True if the projections of attention, or of the feed-forward part, have biases. Only llama has a choice: gpt2 has
  // both, qwen2 has biases of q, k and v, and mistral has none.
  bool attention_bias = false;
  bool mlp_bias = false;
  // If config.json has a list, its first one.
  std::optional<int64_t> bos_token_id = std::nullopt;
  std::optional<int64_t> eos_token_id = std::nullopt;

  bool is_gpt2() const { return model_type == "gpt2"; }
  // Values of fields that are 0.
  int64_t kv_heads() const { return num_key_value_heads == 0 ? num_attention_heads : num_key_value_heads; }
  int64_t head_size() const { return head_dim == 0 ? hidden_size / num_attention_heads : head_dim; }
  int64_t inner_size() const { return intermediate_size == 0 ? 4 * hidden_size : intermediate_size; }
};

// InvalidArgument: a field is out of range, does not fit another one, or has a value that its family lacks. The message
// is one line with the field, its value and the expected ones.
absl::Status CheckConfig(const CausalLMConfig& config);

// Reads the text of a config.json. A field that it lacks has the family's default in transformers, dropout among them.
// Fields that do not change the network are ignored. DataLoss: it is not JSON, or a field has another type.
// InvalidArgument: see CheckConfig(). Unimplemented: it asks for what this library lacks, such as another kind of RoPE.
absl::StatusOr<CausalLMConfig> ParseConfig(absl::string_view json);

// Reads a config.json. Errors begin with the path. DataLoss: it has more than 16 MiB. Other errors are the system's.
absl::StatusOr<CausalLMConfig> ReadConfig(absl::string_view path);

// Returns the text of a config.json, from which transformers' AutoConfig and ParseConfig() read the same model.
// Requires: CheckConfig() returns OK. The same holds for the functions below.
std::string ConfigJson(const CausalLMConfig& config);

// The number of parameters. A tied head counts once.
int64_t ParameterCount(const CausalLMConfig& config);

// Operations per token of a training step, forward and backward, for sequences of `sequence` tokens: 6 N + 12 L H Q T of
// PaLM (Chowdhery et al., arXiv:2204.02311, appendix B). N leaves out what multiplies nothing: gpt2's positions, and an
// embedding that is not tied. MFU is this, times tokens per second, divided by the machine's operations per second.
double FlopsPerToken(const CausalLMConfig& config, int64_t sequence);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_TRANSFORMER_CONFIG_H_
