#include "lockstep/models/transformer/config.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"

namespace lockstep::models {
namespace {

using ::testing::StartsWith;

CausalLMConfig Parsed(absl::string_view json) {
  auto config = ParseConfig(json);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : CausalLMConfig();
}

TEST(CausalLMConfig, HasGpt2sFieldsByTheirNames) {
  const CausalLMConfig config = Parsed(R"({"model_type": "gpt2", "vocab_size": 11, "n_embd": 12, "n_layer": 3,
      "n_head": 4, "n_inner": null, "n_positions": 5, "n_ctx": 5, "layer_norm_epsilon": 1e-6, "attn_pdrop": 0.25,
      "activation_function": "gelu_new", "eos_token_id": [7, 8], "summary_type": "cls_index"})");
  EXPECT_EQ(config.vocab_size, 11);
  EXPECT_EQ(config.hidden_size, 12);
  EXPECT_EQ(config.num_hidden_layers, 3);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.inner_size(), 48);
  EXPECT_EQ(config.max_position_embeddings, 5);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.attention_dropout, 0.25);
  EXPECT_EQ(config.resid_pdrop, 0.1);  // transformers' default
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_id, 7);
}

TEST(CausalLMConfig, ReadsRopeOfBothVersionsOfTransformers) {
  EXPECT_EQ(Parsed(R"({"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": null})").rope_theta, 5e5);
  EXPECT_EQ(
      Parsed(R"({"model_type": "llama", "rope_parameters": {"rope_theta": 3, "rope_type": "default"}})").rope_theta, 3);
}

TEST(CausalLMConfig, ReadsTheScaledRopeOfLlama) {
  const CausalLMConfig config = Parsed(R"({"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": {
      "factor": 32, "low_freq_factor": 0.5, "high_freq_factor": 2.0, "original_max_position_embeddings": 4096,
      "rope_type": "llama3"}})");
  ASSERT_TRUE(config.rope_scaling);
  EXPECT_EQ(config.rope_theta, 5e5);
  EXPECT_EQ(config.rope_scaling->rope_type, "llama3");
  EXPECT_EQ(config.rope_scaling->factor, 32);
  EXPECT_EQ(config.rope_scaling->low_freq_factor, 0.5);
  EXPECT_EQ(config.rope_scaling->high_freq_factor, 2);
  EXPECT_EQ(config.rope_scaling->original_max_position_embeddings, 4096);
  EXPECT_EQ(ConfigJson(Parsed(ConfigJson(config))), ConfigJson(config));
}

// As transformers: rope_scaling is read in place of rope_parameters, and llama3's length has a default.
TEST(CausalLMConfig, ReadsOneOfTwoScalings) {
  CausalLMConfig config = Parsed(R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2},
      "rope_parameters": {"rope_theta": 3, "rope_type": "llama3", "factor": 4}})");
  EXPECT_EQ(config.rope_scaling->rope_type, "linear");
  EXPECT_EQ(config.rope_theta, 1e4);
  config = Parsed(R"({"model_type": "llama", "max_position_embeddings": 77, "rope_scaling": {}, "rope_parameters": {
      "rope_theta": 3, "rope_type": "llama3", "factor": 4, "low_freq_factor": 1, "high_freq_factor": 2}})");
  EXPECT_EQ(config.rope_scaling->original_max_position_embeddings, 77);
  EXPECT_EQ(config.rope_theta, 3);
}

TEST(CausalLMConfig, DistinguishesNoSlidingWindowFromTheDefault) {
  EXPECT_EQ(Parsed(R"({"model_type": "mistral"})").sliding_window, 4096);
  EXPECT_EQ(Parsed(R"({"model_type": "mistral", "sliding_window": null})").sliding_window, std::nullopt);
}

TEST(CausalLMConfig, SurvivesItsJson) {
  CausalLMConfig config;
  config.model_type = "mistral";
  config.hidden_size = 96;
  config.num_key_value_heads = 4;
  config.head_dim = 10;
  config.intermediate_size = 77;
  config.norm_eps = 3e-7;
  config.rope_theta = 12345.678;
  config.sliding_window = 9;
  config.attention_dropout = 0.3;
  config.tie_word_embeddings = false;
  config.eos_token_id = 5;
  const CausalLMConfig again = Parsed(ConfigJson(config));
  EXPECT_EQ(ConfigJson(again), ConfigJson(config));
  EXPECT_EQ(again.rope_theta, config.rope_theta);
  EXPECT_EQ(again.sliding_window, 9);
  EXPECT_EQ(again.bos_token_id, std::nullopt);
}

TEST(CausalLMConfig, NamesTheFieldThatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[", "DATA_LOSS: not valid JSON"},
      {"[]", "DATA_LOSS: is array, expected an object"},
      {"{}", "DATA_LOSS: field \"model_type\" is missing"},
      {R"({"model_type": "bert"})", "INVALID_ARGUMENT: model_type is \"bert\", expected gpt2, llama, qwen2 or mistral"},
      {R"({"model_type": "gpt2", "vocab_size": "many"})",
       "DATA_LOSS: vocab_size is string, expected an integer of 64 bits"},
      {R"({"model_type": "gpt2", "n_layer": 0})",
       "INVALID_ARGUMENT: n_layer is 0, expected a number from 1 to 2^31 - 1"},
      {R"({"model_type": "gpt2", "n_head": 5})", "INVALID_ARGUMENT: n_embd is 768, expected a multiple of n_head, 5"},
      {R"({"model_type": "llama", "num_key_value_heads": 3})",
       "INVALID_ARGUMENT: num_key_value_heads is 3, expected a divisor of num_attention_heads, 32"},
      {R"({"model_type": "mistral", "head_dim": 5})",
       "INVALID_ARGUMENT: head_dim is 5, expected an even number, for RoPE"},
      {R"({"model_type": "gpt2", "activation_function": "relu"})",
       "INVALID_ARGUMENT: activation_function is \"relu\", expected gelu_new or gelu_pytorch_tanh for gpt2"},
      {R"({"model_type": "qwen2", "hidden_act": "gelu"})",
       "INVALID_ARGUMENT: hidden_act is \"gelu\", expected silu for qwen2"},
      {R"({"model_type": "gpt2", "resid_pdrop": 1})",
       "INVALID_ARGUMENT: resid_pdrop is 1, expected at least 0 and less than 1"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8}})",
       "DATA_LOSS: rope_scaling: field \"low_freq_factor\" is missing"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 8}})",
       "UNIMPLEMENTED: rope_scaling: rope_type is \"yarn\", expected default, linear or llama3: others are not "
       "supported"},
      {R"({"model_type": "qwen2", "rope_scaling": {"type": "linear", "factor": 0}})",
       "INVALID_ARGUMENT: factor of RoPE is 0, expected a positive number"},
      {R"({"model_type": "llama", "rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
           "high_freq_factor": 4}})",
       "INVALID_ARGUMENT: high_freq_factor is 4, expected more than low_freq_factor"},
      {R"({"model_type": "qwen2", "use_sliding_window": true})",
       "UNIMPLEMENTED: use_sliding_window is true, expected false: others are not supported"},
      {R"({"model_type": "llama", "quantization_config": {"bits": 4}})",
       "UNIMPLEMENTED: quantization_config is {\"bits\":4}, expected null: others are not supported"},
  };
  for (const auto& [json, message] : cases) EXPECT_EQ(ParseConfig(json).status().ToString(), message) << json;
}

TEST(CausalLMConfig, CallsFieldsByTheNamesOfTheFamilysFile) {
  const auto check = [](const char* model_type, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      for (const auto& [value, found] : {std::pair("-1", "-1"), {"[]", "array"}}) {
        const absl::Status status =
            ParseConfig(absl::StrCat("{\"model_type\": \"", model_type, "\", \"", name, "\": ", value, "}")).status();
        EXPECT_THAT(std::string(status.message()), StartsWith(absl::StrCat(name, " is ", found, ", expected ")));
      }
    }
  };
  check("gpt2", {"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon", "attn_pdrop"});
  check("llama", {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                  "max_position_embeddings", "rms_norm_eps", "attention_dropout"});
}

TEST(CausalLMConfig, RefusesWhatAFamilyLacks) {
  CausalLMConfig config;
  config.num_key_value_heads = 4;
  EXPECT_EQ(CheckConfig(config).message(), "num_key_value_heads is 4, expected num_attention_heads, 12, for gpt2");
  config.num_key_value_heads = 0;
  config.rope_scaling = RopeScaling{.rope_type = "linear", .factor = 2};
  EXPECT_EQ(CheckConfig(config).message(), "rope_scaling is given, expected none for gpt2");
  config.rope_scaling.reset();
  config.num_attention_heads = 5;
  EXPECT_EQ(CheckConfig(config).message(), "hidden_size is 768, expected a multiple of num_attention_heads, 5");
  config.num_attention_heads = 12;
  config.model_type = "llama";
  config.resid_pdrop = 0.1;
  EXPECT_EQ(CheckConfig(config).message(), "embd_pdrop or resid_pdrop is positive, expected 0 for llama");
  config.resid_pdrop = 0;
  config.sliding_window = 5;
  EXPECT_EQ(CheckConfig(config).message(), "sliding_window is 5, expected none for llama");
  config.model_type = "mistral";
  config.mlp_bias = true;
  EXPECT_EQ(CheckConfig(config).message(), "attention_bias or mlp_bias is true, expected false for mistral");
}

TEST(CausalLMConfig, NamesTheFileThatIsWrong) {
  EXPECT_EQ(ReadConfig("/nowhere/config.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadConfig("/nowhere/config.json").status().message().substr(0, 22), "/nowhere/config.json: ");
  const std::string large = ::testing::TempDir() + "/large.json";
  std::ofstream(large).seekp(16 << 20).put('}');
  EXPECT_EQ(ReadConfig(large).status().message(), large + ": has 16777217 bytes, expected at most 16777216");
}

// The published sizes.
TEST(CausalLMConfig, CountsParameters) {
  EXPECT_EQ(ParameterCount(CausalLMConfig()), 124439808);                         // GPT-2
  EXPECT_EQ(ParameterCount(Parsed(R"({"model_type": "llama"})")), 6738415616);    // Llama 2 7B
  EXPECT_EQ(ParameterCount(Parsed(R"({"model_type": "mistral"})")), 7241732096);  // Mistral 7B v0.1
  EXPECT_EQ(ParameterCount(Parsed(R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
      "num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24, "tie_word_embeddings": true})")),
            494032768);  // Qwen2 0.5B
}

// nanoGPT's estimate_mfu() for GPT-2 with sequences of 1,024.
TEST(CausalLMConfig, CountsOperations) {
  EXPECT_EQ(FlopsPerToken(CausalLMConfig(), 1024), 6.0 * (124439808 - 1024 * 768) + 12.0 * 12 * 12 * 64 * 1024);
}

}  // namespace
}  // namespace lockstep::models
