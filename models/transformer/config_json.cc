// The config.json of transformers, as it is read and written.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/pt2/json_reader.h"
#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/internal/config_fields.h"

namespace lockstep::models {
namespace {

using checkpoint::pt2::Json;
using checkpoint::pt2::JsonReader;
using internal::FieldNames;

constexpr uint64_t kLongestConfig = 16 << 20;

constexpr FieldNames kLlamas = {
    "hidden_size",  "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
    "rms_norm_eps", "attention_dropout", "hidden_act"};
constexpr FieldNames kGpt2s = {
    "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon", "attn_pdrop", "activation_function"};

// transformers' class, its names of fields and their defaults.
struct Family {
  const char* architecture;
  const FieldNames& names;
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

// Requires: CheckModelType() returns OK.
Family FamilyOf(const std::string& model_type) {
  CausalLMConfig config = LlamaDefaults(model_type.c_str());
  if (model_type == "llama") return {"LlamaForCausalLM", kLlamas, config};
  if (model_type == "qwen2") {
    config.vocab_size = 151936;
    config.intermediate_size = 22016;
    config.num_key_value_heads = 32;
    config.max_position_embeddings = 32768;
    config.bos_token_id = config.eos_token_id = std::nullopt;
    return {"Qwen2ForCausalLM", kLlamas, config};
  }
  if (model_type == "mistral") {
    config.intermediate_size = 14336;
    config.num_key_value_heads = 8;
    config.max_position_embeddings = 131072;
    config.sliding_window = 4096;
    return {"MistralForCausalLM", kLlamas, config};
  }
  config = CausalLMConfig();
  config.attention_dropout = config.embd_pdrop = config.resid_pdrop = 0.1;
  config.bos_token_id = config.eos_token_id = 50256;
  return {"GPT2LMHeadModel", kGpt2s, config};
}

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

void ReadFields(Fields& fields, const FieldNames& names, CausalLMConfig& config) {
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
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckModelType(model_type));
  Family family = FamilyOf(model_type);
  Fields fields(json);
  ReadFields(fields, family.names, family.defaults);
  RefuseOthers(fields, family.defaults);
  LOCKSTEP_RETURN_IF_ERROR(fields.status());
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckConfig(family.defaults, family.names));
  return family.defaults;
}

}  // namespace

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
  const auto& [architecture, names, defaults] = FamilyOf(config.model_type);
  Json json;
  json["architectures"] = {architecture};
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

}  // namespace lockstep::models
