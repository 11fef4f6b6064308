// The C++ side of transformer_peer_test.py and compare_with_transformers.py.
//
//   transformer_program FOLDER IDS RESULTS SAVED SHARD_BYTES
//
// Loads a folder of transformers. Saves {"logits": for the tokens in IDS (.pt), "inverse_frequencies": RoPE's}, and the
// model as a folder.
//
//   transformer_program CASES RESULTS
//
// CASES is a list of {"name", "config": a config.json, "steps", "accumulation", "max_norm", "autocast", "fused",
// "batches": int64 [steps * accumulation, batch, time + 1]}. Makes the model and trains it as transformer_page.py does.
// Saves {name: {"initial": the parameters, "losses", "norms", "final": the parameters}, ...} to RESULTS.

#include <ATen/ATen.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/models/transformer/config.h"
#include "lockstep/models/transformer/internal/rope.h"
#include "lockstep/models/transformer/pretrained.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::models {
namespace {

using checkpoint::Value;

Value Parameters(const CausalLM& net) {
  Value parameters = Value::Dict();
  for (const auto& item : net->named_parameters()) parameters.Set(item.key(), item.value().detach().clone());
  return parameters;
}

// One micro-batch; returns its part of the step's loss.
double Backward(CausalLM& net, const at::Tensor& batch, int64_t accumulation, bool bfloat16) {
  const int64_t time = batch.size(1) - 1;
  at::Tensor loss;
  {
    std::optional<ddp::Autocast> autocast;
    if (bfloat16) autocast.emplace(at::kCPU, at::kBFloat16);
    const at::Tensor ids = batch.narrow(1, 0, time), targets = batch.narrow(1, 1, time);
    loss = NextTokenLoss(net(ids), targets.masked_fill(ids.eq(0), -100)) / accumulation;
  }
  loss.backward();
  return loss.item<double>();
}

absl::StatusOr<Value> Train(comm::ProcessGroup& group, const Value& given) {
  LOCKSTEP_ASSIGN_OR_RETURN(const CausalLMConfig config, ParseConfig(given.Find("config")->string_value()));
  at::manual_seed(11);
  LOCKSTEP_ASSIGN_OR_RETURN(CausalLM net, MakeCausalLM(config));
  const Value initial = Parameters(net);
  const int64_t accumulation = given.Find("accumulation")->int_value();
  const at::Tensor batches = given.Find("batches")->tensor();
  const bool bfloat16 = given.Find("autocast")->bool_value();
  const double max_norm = given.Find("max_norm")->double_value();
  optim::AdamW optimizer(net->parameters(),
                         optim::AdamWOptions(1e-3).weight_decay(0.1).fused(given.Find("fused")->bool_value()));
  Value losses = Value::List(), norms = Value::List();
  for (int64_t step = 0; step < batches.size(0) / accumulation; ++step) {
    optimizer.zero_grad();
    for (int64_t part = 0; part < accumulation; ++part)
      losses.Append(Backward(net, batches[step * accumulation + part], accumulation, bfloat16));
    LOCKSTEP_ASSIGN_OR_RETURN(const double norm, ddp::ClipGradNorm(group, net->parameters(), max_norm));
    norms.Append(norm);
    optimizer.step();
  }
  return Value::Dict({{"initial", initial}, {"losses", losses}, {"norms", norms}, {"final", Parameters(net)}});
}

absl::Status Compare(const std::vector<std::string>& arguments) {
  LOCKSTEP_ASSIGN_OR_RETURN(CausalLM net, LoadPretrained(arguments[0]));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value ids, checkpoint::Load(arguments[1]));
  const at::NoGradGuard no_grad;
  net->eval();
  const Value results = Value::Dict(
      {{"logits", net(ids.tensor())}, {"inverse_frequencies", internal::InverseFrequencies(net->config(), at::kCPU)}});
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(arguments[2], results));
  return SavePretrained(arguments[3], *net, net->config(), std::stoll(arguments[4]));
}

absl::Status TrainAll(comm::ProcessGroup& group, const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value cases, checkpoint::Load(from));
  Value results = Value::Dict();
  for (const Value& given : cases.items()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value result, Train(group, given));
    results.Set(*given.Find("name"), result);
  }
  return checkpoint::Save(to, results);
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 5) return Compare(arguments);
  if (arguments.size() != 2)
    return absl::InvalidArgumentError(
        "usage: transformer_program CASES RESULTS | FOLDER IDS RESULTS SAVED SHARD_BYTES");
  comm::InitOptions options;
  options.backend = "shm";
  return comm::testing::InitRanks(
      options, 1, [&](comm::ProcessGroup& group) { return TrainAll(group, arguments[0], arguments[1]); })[0];
}

}  // namespace
}  // namespace lockstep::models

int main(int argc, char** argv) {
  const absl::Status status = lockstep::models::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
