#include "lockstep/examples/gpt/model.h"

#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/models/transformer/pretrained.h"

namespace lockstep::examples {

namespace fs = std::filesystem;
using models::CausalLM;

absl::StatusOr<models::CausalLMConfig> ConfigOf(const std::string& folder, const data::Tokenizer& tokenizer,
                                                int64_t block) {
  models::CausalLMConfig config;
  if (folder.empty()) {
    config.vocab_size = tokenizer.vocab_size();
    config.hidden_size = 128;
    config.num_hidden_layers = 4;
    config.num_attention_heads = 4;
    config.max_position_embeddings = block;
    config.bos_token_id = config.eos_token_id = tokenizer.end_of_text();
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(config, models::ReadConfig((fs::path(folder) / "config.json").string()));
  }
  if (block <= config.max_position_embeddings) return config;
  return FlagError("block", block, absl::StrCat("at most ", config.max_position_embeddings, ", the model's positions"));
}

absl::StatusOr<CausalLM> ModelOf(const std::string& folder, const models::CausalLMConfig& config) {
  for (const char* weights : {"model.safetensors", "model.safetensors.index.json"}) {
    if (!folder.empty() && fs::exists(fs::path(folder) / weights)) return models::LoadPretrained(folder, at::kFloat);
  }
  return models::MakeCausalLM(config);
}

absl::StatusOr<CausalLM> TrainedModel(const std::string& path) {
  if (!absl::EndsWith(path, ".pt")) return models::LoadPretrained(path, at::kFloat);
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value saved, checkpoint::Load(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string json, checkpoint::GetString(saved, "config"));
  LOCKSTEP_ASSIGN_OR_RETURN(const models::CausalLMConfig config, models::ParseConfig(json));
  LOCKSTEP_ASSIGN_OR_RETURN(CausalLM net, models::MakeCausalLM(config));
  const checkpoint::Value* const state = saved.Find("state_dict");
  LOCKSTEP_RETURN_IF_ERROR(Annotate(checkpoint::LoadStateDict(*net, state ? *state : checkpoint::Value()), path));
  return net;
}

absl::Status PrintText(CausalLM& net, const data::Tokenizer& tokenizer, const std::string& prompt,
                       const models::SamplingOptions& options) {
  const bool is_text = net->config().vocab_size <= tokenizer.vocab_size();
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int64_t> tokens, tokenizer.Encode(prompt));
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_text());
  const auto text = [&](int64_t token) {
    const auto decoded = tokenizer.Decode({token});
    return is_text && decoded.ok() ? *decoded : absl::StrCat(token, " ");
  };
  std::cout << prompt;
  const auto print = [&](int64_t token) { std::cout << text(token) << std::flush; };
  LOCKSTEP_RETURN_IF_ERROR(models::Generate(net, std::move(tokens), options, print).status());
  std::cout << "\n";
  return absl::OkStatus();
}

}  // namespace lockstep::examples
