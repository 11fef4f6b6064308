#include "lockstep/models/transformer/config.h"

#include <initializer_list>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/models/transformer/internal/config_fields.h"

namespace lockstep::models {
namespace {

using internal::FieldNames;

constexpr FieldNames kOwn = {
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
    "norm_eps",    "attention_dropout", "activation"};

absl::Status Unexpected(absl::string_view name, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", found, ", expected ", expected));
}

template <typename T>
absl::Status CheckRange(absl::string_view name, T value, bool right, absl::string_view expected) {
  return right ? absl::OkStatus() : Unexpected(name, absl::StrCat(value), expected);
}

absl::Status CheckSizes(const CausalLMConfig& config, const FieldNames& names) {
  constexpr int64_t kMost = int64_t{1} << 31;
  for (const auto& [name, value, least] : std::initializer_list<std::tuple<const char*, int64_t, int64_t>>{
           {"vocab_size", config.vocab_size, 1},
           {names.hidden_size, config.hidden_size, 1},
           {names.layers, config.num_hidden_layers, 1},
           {names.heads, config.num_attention_heads, 1},
           {"num_key_value_heads", config.num_key_value_heads, 0},
           {"head_dim", config.head_dim, 0},
           {names.intermediate_size, config.intermediate_size, 0},
           {names.positions, config.max_position_embeddings, 1},
           {"sliding_window", config.sliding_window.value_or(1), 1}}) {
    LOCKSTEP_RETURN_IF_ERROR(CheckRange(name, value, value >= least && value < kMost,
                                        absl::StrCat("a number from ", least, " to 2^31 - 1")));
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const CausalLMConfig& config, const FieldNames& names) {
  const int64_t heads = config.num_attention_heads, hidden = config.hidden_size;
  if ((config.head_dim == 0 || config.model_type == "llama") && hidden % heads != 0)
    return Unexpected(names.hidden_size, absl::StrCat(hidden),
                      absl::StrCat("a multiple of ", names.heads, ", ", heads));
  if (heads % config.kv_heads() != 0)
    return Unexpected("num_key_value_heads", absl::StrCat(config.kv_heads()),
                      absl::StrCat("a divisor of num_attention_heads, ", heads));
  if (config.is_gpt2() && config.kv_heads() != heads)
    return Unexpected("num_key_value_heads", absl::StrCat(config.kv_heads()),
                      absl::StrCat("num_attention_heads, ", heads, ", for gpt2"));
  if (config.is_gpt2() && config.head_size() * heads != hidden)
    return Unexpected("head_dim", absl::StrCat(config.head_dim),
                      absl::StrCat("hidden_size / num_attention_heads, ", hidden / heads, ", for gpt2"));
  if (!config.is_gpt2() && config.head_size() % 2 != 0)
    return Unexpected("head_dim", absl::StrCat(config.head_size()), "an even number, for RoPE");
  return absl::OkStatus();
}

absl::Status CheckNumbers(const CausalLMConfig& config, const FieldNames& names) {
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, double>>{{names.attention_dropout, config.attention_dropout},
                                                             {"embd_pdrop", config.embd_pdrop},
                                                             {"resid_pdrop", config.resid_pdrop}}) {
    LOCKSTEP_RETURN_IF_ERROR(CheckRange(name, value, value >= 0 && value < 1, "at least 0 and less than 1"));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRange(names.norm_eps, config.norm_eps, config.norm_eps > 0, "a positive number"));
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("rope_theta", config.rope_theta, config.rope_theta > 0, "a positive number"));
  return CheckRange("initializer_range", config.initializer_range, config.initializer_range >= 0, "at least 0");
}

absl::Status CheckRope(const CausalLMConfig& config) {
  if (!config.rope_scaling) return absl::OkStatus();
  if (config.is_gpt2()) return Unexpected("rope_scaling", "given", "none for gpt2");
  const auto& [type, factor, low, high, positions] = *config.rope_scaling;
  if (type != "linear" && type != "llama3")
    return Unexpected("rope_type", absl::StrCat("\"", type, "\""), "linear or llama3");
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("factor of RoPE", factor, factor > 0, "a positive number"));
  if (type == "linear") return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("low_freq_factor", low, low > 0, "a positive number"));
  LOCKSTEP_RETURN_IF_ERROR(CheckRange("high_freq_factor", high, high > low, "more than low_freq_factor"));
  return CheckRange("original_max_position_embeddings", positions, positions > 0, "a positive number");
}

// Fields that only some families have.
absl::Status CheckFamily(const CausalLMConfig& config, const FieldNames& names) {
  const std::string& type = config.model_type;
  const std::string& activation = config.activation;
  const bool gelu = activation == "gelu_new" || activation == "gelu_pytorch_tanh";
  if (!activation.empty() && !(config.is_gpt2() ? gelu : activation == "silu"))
    return Unexpected(names.activation, absl::StrCat("\"", activation, "\""),
                      config.is_gpt2() ? "gelu_new or gelu_pytorch_tanh for gpt2" : absl::StrCat("silu for ", type));
  if (!config.is_gpt2() && (config.embd_pdrop > 0 || config.resid_pdrop > 0))
    return Unexpected("embd_pdrop or resid_pdrop", "positive", absl::StrCat("0 for ", type));
  if (type != "llama" && (config.attention_bias || config.mlp_bias))
    return Unexpected("attention_bias or mlp_bias", "true", absl::StrCat("false for ", type));
  if (type != "mistral" && config.sliding_window)
    return Unexpected("sliding_window", absl::StrCat(*config.sliding_window), absl::StrCat("none for ", type));
  return absl::OkStatus();
}

// Parameters of a layer without its norms.
int64_t LayerParameters(const CausalLMConfig& config) {
  const int64_t hidden = config.hidden_size, inner = config.inner_size();
  const int64_t q = config.num_attention_heads * config.head_size(), kv = config.kv_heads() * config.head_size();
  int64_t count = 2 * hidden * (q + kv) + (config.is_gpt2() ? 2 : 3) * hidden * inner;
  const bool qkv_bias = config.is_gpt2() || config.model_type == "qwen2" || config.attention_bias;
  if (qkv_bias) count += q + 2 * kv;
  if (config.is_gpt2() || config.attention_bias) count += hidden;
  if (config.is_gpt2()) count += inner + hidden;
  if (config.mlp_bias) count += 2 * inner + hidden;
  return count;
}

}  // namespace

absl::Status internal::CheckModelType(const std::string& model_type) {
  for (const char* family : {"gpt2", "llama", "qwen2", "mistral"}) {
    if (model_type == family) return absl::OkStatus();
  }
  return Unexpected("model_type", absl::StrCat("\"", model_type, "\""), "gpt2, llama, qwen2 or mistral");
}

absl::Status internal::CheckConfig(const CausalLMConfig& config, const FieldNames& names) {
  LOCKSTEP_RETURN_IF_ERROR(CheckModelType(config.model_type));
  LOCKSTEP_RETURN_IF_ERROR(CheckSizes(config, names));
  LOCKSTEP_RETURN_IF_ERROR(CheckHeads(config, names));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumbers(config, names));
  LOCKSTEP_RETURN_IF_ERROR(CheckRope(config));
  return CheckFamily(config, names);
}

absl::Status CheckConfig(const CausalLMConfig& config) { return internal::CheckConfig(config, kOwn); }

int64_t ParameterCount(const CausalLMConfig& config) {
  const int64_t hidden = config.hidden_size, layers = config.num_hidden_layers;
  const int64_t embedding = config.vocab_size * hidden, norm = (config.is_gpt2() ? 2 : 1) * hidden;
  const int64_t positions = config.is_gpt2() ? config.max_position_embeddings * hidden : 0;
  return (config.tie_word_embeddings ? 1 : 2) * embedding + positions + layers * (LayerParameters(config) + 2 * norm) +
         norm;
}

double FlopsPerToken(const CausalLMConfig& config, int64_t sequence) {
  const int64_t unused =
      (config.is_gpt2() ? config.max_position_embeddings : 0) + (config.tie_word_embeddings ? 0 : config.vocab_size);
  const int64_t n = ParameterCount(config) - unused * config.hidden_size;
  const double attention = static_cast<double>(config.num_hidden_layers) * config.num_attention_heads;
  return 6.0 * n + 12.0 * attention * config.head_size() * sequence;
}

}  // namespace lockstep::models
