// One C++ rank of fsdp_peer_test.py: fsdp_program TRAINING OUTPUT INIT_METHOD RANK WORLD_SIZE BACKEND
//
// TRAINING is {"program": FILE.pt2, "units": [path, ...], "optimizer", "micro_steps", "inputs": [[tensor, ...], ...]} with
// the inputs of each rank, one for each micro step. Trains the mean square of the program's output, and saves all
// parameters by name to OUTPUT. Optional: "rows": False for Shard::kElements; "load", "save": folders of a sharded
// checkpoint that is loaded before and saved after; "flat" for its groups; "load_full", "full": .pt files, so;
// "mixed": bfloat16, with gradients that are reduced in this dtype.

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/sharded/sharded.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/full_state_dict.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/no_sync.h"
#include "lockstep/fsdp/state_dict.h"
#include "lockstep/models/exported/file.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp {
namespace {

using checkpoint::Value;

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const std::string& name, const std::vector<at::Tensor>& shards) {
  if (name == "sgd") return std::make_unique<optim::SGD>(shards, optim::SGDOptions(0.05).momentum(0.9));
  return std::make_unique<optim::AdamW>(shards, optim::AdamWOptions(0.01).fused(name == "fused_adamw"));
}

absl::Status Train(const Value& training, const std::string& output, const comm::InitOptions& init) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(init));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string file, checkpoint::GetString(training, "program"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, checkpoint::GetString(training, "optimizer"));
  LOCKSTEP_ASSIGN_OR_RETURN(models::exported::ExportedModule module, models::exported::Load(file));
  const Value* load_full = training.Find("load_full");
  if (load_full) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value model, checkpoint::LoadEntry(load_full->string_value(), "model"));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*module, model));
  }
  Options options;
  const Value* rows = training.Find("rows");
  options.shard = rows && !rows->bool_value() ? Shard::kElements : Shard::kRows;
  for (const Value& path : training.Find("units")->items()) options.units.push_back(path.string_value());
  if (const Value* reduce_dtype = training.Find("mixed")) {
    options.mixed_precision.emplace();
    if (reduce_dtype->string_value() == "float32") options.mixed_precision->reduce_dtype = at::kFloat;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(module, group.get(), options));
  const auto optimizer = MakeOptimizer(name, net.shards());
  StateDictOptions state_options;
  state_options.flatten_optimizer_state_dict = training.Find("flat") && training.Find("flat")->bool_value();
  if (const Value* load = training.Find("load")) {
    LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(load->string_value(), net, *optimizer, state_options));
  }
  if (load_full) {
    LOCKSTEP_RETURN_IF_ERROR(LoadFullOptimizerStateDict(load_full->string_value(), "optimizer", net, *optimizer));
  }
  const int64_t micro_steps = training.Find("micro_steps")->int_value();
  int64_t done = 0;
  for (const Value& input : training.Find("inputs")->items()[group->rank()].items()) {
    const auto backward = [&] { net(input.tensor()).toTensor().square().mean().backward(); };
    if (++done % micro_steps != 0) {
      const NoSync no_sync(net);
      backward();
    } else {
      backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
    }
  }
  {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
    Value parameters = Value::Dict();
    for (const auto& item : net.module()->named_parameters()) parameters.Set(item.key(), item.value().detach());
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(output, parameters));
  }
  if (const Value* save = training.Find("save")) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto state, GetStateDict(net, *optimizer, state_options));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded(save->string_value(), state, group.get()));
  }
  if (const Value* full = training.Find("full")) {
    LOCKSTEP_RETURN_IF_ERROR(
        SaveFullStateDict(full->string_value(), net, *optimizer, [](const Value& model, const Value& optimizer_state) {
          return Value::Dict({{"model", model}, {"optimizer", optimizer_state}});
        }));
  }
  return group->Barrier();
}

absl::Status Run(char** argv) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value training, checkpoint::Load(argv[1]));
  comm::InitOptions init;
  init.backend = argv[6];  // parameters are in shared pages over shm, and paged over gloo
  init.init_method = argv[3];
  init.rank = std::atoi(argv[4]);
  init.world_size = std::atoi(argv[5]);
  init.timeout = absl::Seconds(60);
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] { status = Train(training, argv[2], init); });
  return thrown.ok() ? status : thrown;
}

}  // namespace
}  // namespace lockstep::fsdp

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  at::set_num_threads(1);
  const absl::Status status = lockstep::fsdp::Run(argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
