#include "lockstep/examples/gpt/run_state.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/elastic/sharded_optimizer.h"
#include "lockstep/examples/program/saved_flag.h"
#include "lockstep/models/transformer/config.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/muon.h"

namespace lockstep::examples {
namespace {

using checkpoint::Value;
using torch::optim::OptimizerParamGroup;

constexpr double kDecay = 0.1, kPi = 3.14159265358979323846;

optim::AdamWOptions AdamW(double learning_rate, double decay) {
  return optim::AdamWOptions(learning_rate).betas({0.9, 0.95}).weight_decay(decay).fused(true);
}

// `matrices` and `others` may be pieces of parameters.
std::vector<OptimizerParamGroup> Groups(std::vector<at::Tensor> matrices, std::vector<at::Tensor> others, double rate) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::move(matrices), std::make_unique<optim::AdamWOptions>(AdamW(rate, kDecay)));
  groups.emplace_back(std::move(others), std::make_unique<optim::AdamWOptions>(AdamW(rate, 0)));
  return groups;
}

}  // namespace

double LearningRateShare(int64_t step, int64_t warmup, int64_t steps) {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double done = static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, steps - warmup));
  return 0.1 + 0.9 * 0.5 * (1 + std::cos(kPi * std::min(1.0, done)));
}

absl::Status RunState::Keep(elastic::World& world, models::CausalLM model, RunOptions options) {
  net = std::move(model);
  options_ = std::move(options);
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("step", &step));
  if (options_.shard) return KeepSharded(world);
  std::vector<at::Tensor> layers, matrices, others;  // layers: their matrices, if these are Muon's
  for (const auto& parameter : net->named_parameters()) {
    const std::string& name = parameter.key();
    const bool in_layer = absl::StrContains(name, ".h.") || absl::StrContains(name, ".layers.");
    const bool is_muons = options_.optimizer == "muon" && in_layer;
    (parameter.value().dim() < 2 ? others : is_muons ? layers : matrices).push_back(parameter.value());
  }
  const double rate = options_.learning_rate;
  optimizers_.emplace_back("adamw", std::make_unique<optim::AdamW>(Groups(matrices, others, rate), AdamW(rate, 0)));
  if (!layers.empty()) {
    auto muon = optim::MuonOptions(rate).weight_decay(kDecay).adjust_lr_fn("match_rms_adamw");
    optimizers_.emplace_back("muon", std::make_unique<optim::Muon>(layers, std::move(muon)));
  }
  for (const auto& [name, optimizer] : optimizers_) LOCKSTEP_RETURN_IF_ERROR(world.Keep(name, *optimizer));
  return world.Keep("net", *net);
}

absl::Status RunState::KeepSharded(elastic::World& world) {
  const std::string layers = net->config().is_gpt2() ? "transformer.h.*" : "model.layers.*";
  LOCKSTEP_ASSIGN_OR_RETURN(
      sharded, elastic::ShardModel(
                   net, {.units = {layers}, .virtual_ranks = options_.virtual_ranks, .virtual_seed = options_.seed}));
  const auto parameters = net->named_parameters();
  std::vector<at::Tensor> matrices, others;
  for (size_t i = 0; i < sharded->pieces().size(); ++i) {
    const bool is_matrix = parameters[sharded->piece_names()[i]].dim() > 1;
    (is_matrix ? matrices : others).push_back(sharded->pieces()[i]);
  }
  const double rate = options_.learning_rate;
  auto adamw =
      std::make_unique<elastic::ShardedOptimizer<optim::AdamW>>(Groups(matrices, others, rate), AdamW(rate, 0));
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("adamw", *adamw));
  optimizers_.emplace_back("adamw", std::move(adamw));
  return world.Keep("net", *sharded);
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
  Value saved =
      Value::Dict({{"state_dict", checkpoint::StateDict(*net)}, {"config", models::ConfigJson(net->config())}});
  for (const auto& [flag, value] : options_.saved_flags) saved.Set(flag, value);
  for (const auto& [name, optimizer] : optimizers_) {
    LOCKSTEP_ASSIGN_OR_RETURN(Value state, checkpoint::OptimizerStateDict(*optimizer));
    saved.Set(name, std::move(state));
  }
  return saved;
}

absl::Status RunState::Resume(const checkpoint::Restored& newest) {
  const Value& saved = newest.value;
  const auto part = [&](const std::string& key) { return saved.Find(key) ? *saved.Find(key) : Value(); };
  for (const auto& [flag, value] : options_.saved_flags) LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(saved, flag, value));
  const char* const optimizer = saved.Find("muon") ? "muon" : "adamw";
  if (options_.optimizer != optimizer) {
    return FlagError("optimizer", options_.optimizer, absl::StrCat(optimizer, ", as in the checkpoint"));
  }
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net, part("state_dict")));
  for (const auto& [name, optimizer] : optimizers_) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(checkpoint::LoadOptimizerStateDict(*optimizer, part(name)), name));
  }
  step = newest.info.step;
  return absl::OkStatus();
}

}  // namespace lockstep::examples
