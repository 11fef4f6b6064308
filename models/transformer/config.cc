#include "lockstep/models/transformer/config.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/pt2/json_reader.h"

namespace lockstep::models {
namespace {

using checkpoint::pt2::Json;
using checkpoint::pt2::JsonReader;

constexpr uint64_t kLongestConfig = 16 << 20;

// transformers' class and its defaults.
struct Family {
  const char* architecture;
  CausalLMConfig defaults;
};

CausalLMConfig LlamaDefaults(const char* model_type) {
  CausalLMConfig config;
  config.model_type = model_type;
  config.vocab_size = 32000;
  config.hidden_size = 4096;
  config.num_hidden_layers = config.num_attention_heads = 32;
  config.intermediate_size = 11008;
  config.max_position_embeddings = 2048;
  config.norm_eps = 1e-6;
  config.tie_word_embeddings = false;
  config.bos_token_id = 1;
  config.eos_token_id = 2;
  return config;
}

absl::StatusOr<Family> FamilyOf(const std::string& model_type) {
  CausalLMConfig config = LlamaDefaults(model_type.c_str());
  if (model_type == "llama") return Family{"LlamaForCausalLM", config};
  if (model_type == "qwen2") {
    config.vocab_size = 151936;
    config.intermediate_size = 22016;
    config.num_key_value_heads = 32;
    config.max_position_embeddings = 32768;
    config.bos_token_id = config.eos_token_id = std::nullopt;
    return Family{"Qwen2ForCausalLM", config};
  }
  if (model_type == "mistral") {
    config.intermediate_size = 14336;
    config.num_key_value_heads = 8;
    config.max_position_embeddings = 131072;
    config.sliding_window = 4096;
    return Family{"MistralForCausalLM", config};
  }
  if (model_type == "gpt2") {
    config = CausalLMConfig();
    config.attention_dropout = config.embd_pdrop = config.resid_pdrop = 0.1;
    config.bos_token_id = config.eos_token_id = 50256;
    return Family{"GPT2LMHeadModel", config};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("model_type is \"", model_type, "\", expected gpt2, llama, qwen2 or mistral"));
}

// The names of fields: CausalLMConfig's own, and those in the config.json of a family.
struct Names {
  const char *hidden_size, *layers, *heads, *intermediate_size, *positions, *norm_eps, *attention_dropout, *activation;
};
constexpr Names kOwn = {
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
    "norm_eps",    "attention_dropout", "activation"};
constexpr Names kLlamas = {
    "hidden_size",  "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
    "rms_norm_eps", "attention_dropout", "hidden_act"};
constexpr Names kGpt2s = {
    "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon", "attn_pdrop", "activation_function"};

const Names& JsonNames(const CausalLMConfig& config) { return config.is_gpt2() ? kGpt2s : kLlamas; }

// Reads fields that may be missing or null: then `to` does not change.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  void Read(const char* name, int64_t& to) {
    if (const Json* value = JsonReader::Find(json_, name)) to = reader_.AsInteger(*value, name);
  }
  void Read(const char* name, double& to) {
    if (const Json* value = JsonReader::Find(json_, name)) to = reader_.AsDouble(*value, name);
  }
  void Read(const char* name, bool& to) {
    if (const Json* value = JsonReader::Find(json_, name)) to = reader_.AsBool(*value, name);
  }
  void Read(const char* name, std::string& to) {
    if (const Json* value = JsonReader::Find(json_, name)) to = reader_.AsText(*value, name);
  }
  // null: no value. The first of a list.
  void Read(const char* name, std::optional<int64_t>& to) {
    if (const auto found = json_.find(name); found != json_.end() && found->is_null()) to = std::nullopt;
    const Json* value = JsonReader::Find(json_, name);
    if (value && value->is_array() && !value->empty()) value = &value->front();
    if (value) to = reader_.AsInteger(*value, name);
  }

  // Fails unless the field is missing, null or `expected`.
  void Expect(const char* name, const Json& expected) {
    const Json* value = JsonReader::Find(json_, name);
    if (value && *value != expected) {
      reader_.Fail(absl::UnimplementedError(
          absl::StrCat(name, " is ", value->dump(), ", expected ", expected.dump(), ": others are not supported")));
    }
  }

  // RoPE, as transformers 4 (rope_scaling beside rope_theta) and 5 (rope_parameters) have it. The first one counts.
  void ReadRope(CausalLMConfig& config) {
    Read("rope_theta", config.rope_theta);
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      const Json* rope = JsonReader::Find(json_, name);
      if (!rope || rope->empty()) continue;
      Fields inside(*rope);
      inside.ReadRopeParameters(config);
      return reader_.Fail(Annotate(inside.status(), name));
    }
  }

  const absl::Status& status() const { return reader_.status(); }

 private:
  void Require(const char* name, double& to) {
    if (!JsonReader::Find(json_, name)) reader_.Damaged(absl::StrCat("field \"", name, "\" is missing"));
    Read(name, to);
  }

  void ReadRopeParameters(CausalLMConfig& config) {
    Read("rope_theta", config.rope_theta);
    Expect("partial_rotary_factor", 1.0);
    RopeScaling scaling = {.rope_type = "default"};
    const char* const key = JsonReader::Find(json_, "rope_type") ? "rope_type" : "type";
    Read(key, scaling.rope_type);
    if (scaling.rope_type == "default") return;
    if (scaling.rope_type != "linear" && scaling.rope_type != "llama3") {
      return reader_.Fail(absl::UnimplementedError(absl::StrCat(
          key, " is \"", scaling.rope_type, "\", expected default, linear or llama3: others are not supported")));
    }
    Require("factor", scaling.factor);
    if (scaling.rope_type == "llama3") {
      Require("low_freq_factor", scaling.low_freq_factor);
      Require("high_freq_factor", scaling.high_freq_factor);
      scaling.original_max_position_embeddings = config.max_position_embeddings;  // transformers' default
      Read("original_max_position_embeddings", scaling.original_max_position_embeddings);
    }
    config.rope_scaling = scaling;
  }

  const Json& json_;
  JsonReader reader_;
};

// Refuses what would make another network of it.
void RefuseOthers(Fields& fields, const CausalLMConfig& config) {
  fields.Expect("quantization_config", nullptr);
  for (const char* name :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention", "use_sliding_window"})
    fields.Expect(name, false);
  fields.Expect("scale_attn_weights", true);
  fields.Expect("partial_rotary_factor", 1.0);
  if (!config.sliding_window)
    fields.Expect("layer_types",
                  std::vector<std::string>(std::max<int64_t>(0, config.num_hidden_layers), "full_attention"));
}

void ReadFields(Fields& fields, CausalLMConfig& config) {
  const Names& names = JsonNames(config);
  fields.Read("vocab_size", config.vocab_size);
  fields.Read(names.hidden_size, config.hidden_size);
  fields.Read(names.layers, config.num_hidden_layers);
  fields.Read(names.heads, config.num_attention_heads);
  fields.Read(names.intermediate_size, config.intermediate_size);
  fields.Read(names.positions, config.max_position_embeddings);
  fields.Read(names.norm_eps, config.norm_eps);
  fields.Read(names.attention_dropout, config.attention_dropout);
  fields.Read(names.activation, config.activation);
  fields.Read("tie_word_embeddings", config.tie_word_embeddings);
  fields.Read("initializer_range", config.initializer_range);
  fields.Read("bos_token_id", config.bos_token_id);
  fields.Read("eos_token_id", config.eos_token_id);
  if (config.is_gpt2()) {
    fields.Read("embd_pdrop", config.embd_pdrop);
    fields.Read("resid_pdrop", config.resid_pdrop);
    return;
  }
  fields.Read("num_key_value_heads", config.num_key_value_heads);
  fields.Read("head_dim", config.head_dim);
  fields.ReadRope(config);
  if (config.model_type == "mistral") fields.Read("sliding_window", config.sliding_window);
  if (config.model_type != "llama") return;
  fields.Read("attention_bias", config.attention_bias);
  fields.Read("mlp_bias", config.mlp_bias);
}

absl::Status Unexpected(absl::string_view name, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", found, ", expected ", expected));
}

template <typename T>
absl::Status CheckRange(absl::string_view name, T value, bool right, absl::string_view expected) {
  return right ? absl::OkStatus() : Unexpected(name, absl::StrCat(value), expected);
}

absl::Status CheckSizes(const CausalLMConfig& config, const Names& names) {
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

absl::Status CheckHeads(const CausalLMConfig& config, const Names& names) {
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

absl::Status CheckNumbers(const CausalLMConfig& config, const Names& names) {
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
absl::Status CheckFamily(const CausalLMConfig& config, const Names& names) {
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

absl::Status Check(const CausalLMConfig& config, const Names& names) {
  LOCKSTEP_RETURN_IF_ERROR(FamilyOf(config.model_type).status());
  LOCKSTEP_RETURN_IF_ERROR(CheckSizes(config, names));
  LOCKSTEP_RETURN_IF_ERROR(CheckHeads(config, names));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumbers(config, names));
  LOCKSTEP_RETURN_IF_ERROR(CheckRope(config));
  return CheckFamily(config, names);
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

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json RopeJson(const std::optional<RopeScaling>& scaling) {
  if (!scaling) return {{"rope_type", "default"}};
  Json json = {{"rope_type", scaling->rope_type}, {"factor", scaling->factor}};
  if (scaling->rope_type == "llama3") {
    json["low_freq_factor"] = scaling->low_freq_factor;
    json["high_freq_factor"] = scaling->high_freq_factor;
    json["original_max_position_embeddings"] = scaling->original_max_position_embeddings;
  }
  return json;
}

void AddLlamaFields(const CausalLMConfig& config, Json& json) {
  json["num_key_value_heads"] = config.kv_heads();
  json["head_dim"] = config.head_size();
  json["rope_theta"] = config.rope_theta;
  if (config.rope_scaling) json["rope_scaling"] = RopeJson(config.rope_scaling);
  json["rope_parameters"] = RopeJson(config.rope_scaling);
  json["rope_parameters"]["rope_theta"] = config.rope_theta;
  if (config.model_type == "mistral") json["sliding_window"] = OrNull(config.sliding_window);
  if (config.model_type == "qwen2") json["use_sliding_window"] = false;
  if (config.model_type != "llama") return;
  json["attention_bias"] = config.attention_bias;
  json["mlp_bias"] = config.mlp_bias;
}

absl::StatusOr<CausalLMConfig> FromJson(const Json& json) {
  if (!json.is_object()) return absl::DataLossError(absl::StrCat("is ", json.type_name(), ", expected an object"));
  JsonReader reader;
  const std::string model_type = reader.Text(json, "model_type");
  LOCKSTEP_RETURN_IF_ERROR(reader.status());
  LOCKSTEP_ASSIGN_OR_RETURN(Family family, FamilyOf(model_type));
  Fields fields(json);
  ReadFields(fields, family.defaults);
  RefuseOthers(fields, family.defaults);
  LOCKSTEP_RETURN_IF_ERROR(fields.status());
  LOCKSTEP_RETURN_IF_ERROR(Check(family.defaults, JsonNames(family.defaults)));
  return family.defaults;
}

}  // namespace

absl::Status CheckConfig(const CausalLMConfig& config) { return Check(config, kOwn); }

absl::StatusOr<CausalLMConfig> ParseConfig(absl::string_view json) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Json parsed, checkpoint::pt2::ParseJson(json));
  return FromJson(parsed);
}

absl::StatusOr<CausalLMConfig> ReadConfig(absl::string_view path) {
  const auto read = [&]() -> absl::StatusOr<CausalLMConfig> {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, checkpoint::file::ReadFile(std::string(path), kLongestConfig));
    return ParseConfig(text);
  };
  absl::StatusOr<CausalLMConfig> config = read();
  if (!config.ok()) return Annotate(config.status(), path);
  return config;
}

std::string ConfigJson(const CausalLMConfig& config) {
  const Names& names = JsonNames(config);
  Json json;
  if (const auto family = FamilyOf(config.model_type); family.ok()) json["architectures"] = {family->architecture};
  json["model_type"] = config.model_type;
  json["vocab_size"] = config.vocab_size;
  json[names.hidden_size] = config.hidden_size;
  json[names.layers] = config.num_hidden_layers;
  json[names.heads] = config.num_attention_heads;
  json[names.intermediate_size] = config.inner_size();
  json[names.positions] = config.max_position_embeddings;
  json[names.norm_eps] = config.norm_eps;
  json[names.attention_dropout] = config.attention_dropout;
  const char* usual = config.is_gpt2() ? "gelu_new" : "silu";
  json[names.activation] = config.activation.empty() ? usual : config.activation;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  json["bos_token_id"] = OrNull(config.bos_token_id);
  json["eos_token_id"] = OrNull(config.eos_token_id);
  if (config.is_gpt2()) {
    json["embd_pdrop"] = config.embd_pdrop;
    json["resid_pdrop"] = config.resid_pdrop;
  } else {
    AddLlamaFields(config, json);
  }
  return json.dump(2) + "\n";
}

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
