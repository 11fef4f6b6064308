#include "lockstep/examples/gpt/run_state.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/data/tokens/load_tokenizer.h"
#include "lockstep/data/tokens/open_texts.h"
#include "lockstep/elastic/sharded_optimizer.h"
#include "lockstep/examples/program/saved_flag.h"
#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/pretrained.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/muon.h"

namespace lockstep::examples {
namespace {

namespace fs = std::filesystem;
using checkpoint::Value;
using models::CausalLMConfig;
using torch::optim::OptimizerParamGroup;

// The configuration in `folder`, one of Hugging Face's, or of a small GPT-2.
absl::StatusOr<CausalLMConfig> ConfigOf(const std::string& folder, const data::Tokenizer& tokenizer, int64_t block) {
  if (!folder.empty()) return models::ReadConfig((fs::path(folder) / "config.json").string());
  return CausalLMConfig{.vocab_size = tokenizer.vocab_size(),
                        .hidden_size = 128,
                        .num_hidden_layers = 4,
                        .num_attention_heads = 4,
                        .max_position_embeddings = block,
                        .bos_token_id = tokenizer.end_of_text(),
                        .eos_token_id = tokenizer.end_of_text()};
}

// The model in `folder`, converted to float, or, if there are no weights in it, a new one.
absl::StatusOr<models::CausalLM> ModelOf(const std::string& folder, const CausalLMConfig& config) {
  for (const char* weights : {"model.safetensors", "model.safetensors.index.json"}) {
    if (!folder.empty() && fs::exists(fs::path(folder) / weights)) return models::LoadPretrained(folder, at::kFloat);
  }
  return models::MakeCausalLM(config);
}

}  // namespace

absl::Status RunState::Create(elastic::World& world, RunOptions options) {
  options_ = std::move(options);
  const int64_t block = options_.block;
  LOCKSTEP_ASSIGN_OR_RETURN(tokenizer, data::LoadTokenizer(options_.tokenizer));
  LOCKSTEP_ASSIGN_OR_RETURN(const CausalLMConfig config, ConfigOf(options_.model, *tokenizer, block));
  const int64_t most = config.max_position_embeddings;
  if (block > most) return FlagError("block", block, absl::StrCat("at most ", most, ", the model's positions"));
  LOCKSTEP_ASSIGN_OR_RETURN(
      blocks, data::OpenTexts(absl::StrSplit(options_.data, ',', absl::SkipEmpty()), options_.tokenizer, *tokenizer,
                              {.block = block, .vocabulary = config.vocab_size, .end_of_text = config.eos_token_id}));
  if (blocks->size() < 2)
    return FlagError("block", block, absl::StrCat("less than half of the text's ", blocks->tokens(), " tokens"));
  LOCKSTEP_ASSIGN_OR_RETURN(net, ModelOf(options_.model, config));
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("step", &step));
  return KeepModel(world);
}

absl::Status RunState::KeepModel(elastic::World& world) {
  const auto parameters = net->named_parameters();
  std::vector<std::string> names = parameters.keys();
  std::vector<at::Tensor> tensors = parameters.values(), muons, matrices, others;
  const std::string layers = net->config().is_gpt2() ? "transformer.h." : "model.layers.";
  if (options_.shard) {
    fsdp::Options sharding;
    sharding.units = {layers + "*"};
    sharding.virtual_ranks = options_.virtual_ranks;
    sharding.virtual_seed = options_.seed;
    LOCKSTEP_ASSIGN_OR_RETURN(sharded, elastic::ShardModel(net, sharding));
    names = sharded->piece_names();
    tensors = sharded->pieces();
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_muons = options_.optimizer == "muon" && absl::StartsWith(names[i], layers);
    (parameters[names[i]].dim() < 2 ? others : is_muons ? muons : matrices).push_back(tensors[i]);
  }
  const double rate = options_.learning_rate, decay = 0.1;
  const auto adamw = optim::AdamWOptions(rate).betas({0.9, 0.95}).weight_decay(0).fused(true);
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(matrices, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(adamw).weight_decay(decay)));
  groups.emplace_back(others);
  if (options_.shard) {
    using Sharded = elastic::ShardedOptimizer<optim::AdamW>;
    LOCKSTEP_RETURN_IF_ERROR(Keep(world, "adamw", std::make_unique<Sharded>(std::move(groups), adamw)));
    return world.Keep("net", *sharded);
  }
  LOCKSTEP_RETURN_IF_ERROR(Keep(world, "adamw", std::make_unique<optim::AdamW>(std::move(groups), adamw)));
  const auto muon = optim::MuonOptions(rate).weight_decay(decay).adjust_lr_fn("match_rms_adamw");
  if (!muons.empty()) LOCKSTEP_RETURN_IF_ERROR(Keep(world, "muon", std::make_unique<optim::Muon>(muons, muon)));
  return world.Keep("net", *net);
}

template <typename Optimizer>
absl::Status RunState::Keep(elastic::World& world, const std::string& name, std::unique_ptr<Optimizer> optimizer) {
  Optimizer& kept = *optimizer;
  optimizers_[name] = std::move(optimizer);
  return world.Keep(name, kept);
}

std::map<std::string, int64_t> RunState::SavedFlags() const {
  return {{"virtual_ranks", options_.virtual_ranks},
          {"batch_size", options_.batch_size},
          {"block", options_.block},
          {"seed", options_.seed},
          {"shard", options_.shard}};
}

void RunState::ZeroGrad() {
  for (const auto& [name, optimizer] : optimizers_) optimizer->zero_grad();
}

void RunState::Step(double share) {
  for (const auto& [name, optimizer] : optimizers_) {
    for (OptimizerParamGroup& group : optimizer->param_groups()) group.options().set_lr(options_.learning_rate * share);
    optimizer->step();
  }
  ++step;
}

absl::StatusOr<Value> RunState::Checkpoint() const {
  Value saved = Value::Dict({{"state_dict", checkpoint::StateDict(*net)},
                             {"config", models::ConfigJson(net->config())},
                             {"data_tokens", blocks->tokens()}});
  for (const auto& [flag, value] : SavedFlags()) saved.Set(flag, value);
  for (const auto& [name, optimizer] : optimizers_) {
    LOCKSTEP_ASSIGN_OR_RETURN(Value state, checkpoint::OptimizerStateDict(*optimizer));
    saved.Set(name, std::move(state));
  }
  return saved;
}

absl::Status RunState::Resume(const std::string& folder) {
  const auto warn = [this](const std::string& line) { warning = line; };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto manager,
                            checkpoint::Manager::Create(folder, /*group=*/nullptr, {.on_warning = warn}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto newest, manager->LoadLatest());
  if (!newest) return absl::OkStatus();
  step = newest->info.step;
  return Annotate(Load(newest->value), newest->info.path);
}

absl::Status RunState::Load(const Value& saved) {
  for (const auto& [flag, value] : SavedFlags()) LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(saved, flag, value));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t tokens, checkpoint::GetInt(saved, "data_tokens"));
  if (tokens != blocks->tokens())
    return absl::InvalidArgumentError(
        absl::StrCat("--data has ", blocks->tokens(), " tokens: expected ", tokens, ", as in the checkpoint"));
  const char* const optimizer = saved.Find("muon") ? "muon" : "adamw";
  if (options_.optimizer != optimizer)
    return FlagError("optimizer", options_.optimizer, absl::StrCat(optimizer, ", as in the checkpoint"));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, checkpoint::GetDict(saved, "state_dict"));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net, state_dict));
  for (const auto& [name, optimizer] : optimizers_) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value state, checkpoint::GetDict(saved, name));
    LOCKSTEP_RETURN_IF_ERROR(Annotate(checkpoint::LoadOptimizerStateDict(*optimizer, state), name));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::examples
