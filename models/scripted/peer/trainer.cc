// One C++ rank that trains a TorchScript file under ddp::Wrap. scripted_peer_test.py has its Python counterpart.
//
//   trainer --module=net.ts --batches=batches.pt --rank=0 --world_size=2 --init_method=file:///folder/store
//           --output=rank0
//
// --batches is a dict of each rank's list of batches; nets.py describes a batch. Writes {"losses": [a float a step],
// "state_dict": ...} to output.pt and the module to output.ts. If anything fails, exits with 1 and prints the error to
// standard error.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gflags/gflags.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/models/scripted/file.h"
#include "lockstep/models/scripted/script_module.h"

DEFINE_string(module, "", "the file that Python exported");
DEFINE_string(state_dict, "", "a state dict that Python saved, which rank 0 loads");
DEFINE_string(batches, "", "the batches of all ranks");
DEFINE_int32(rank, 0, "this process's");
DEFINE_int32(world_size, 1, "ranks");
DEFINE_string(init_method, "", "where the ranks meet");
DEFINE_double(timeout, 60, "seconds that meeting, or one collective, may take");
DEFINE_string(output, "", "where to write what came out");
DEFINE_bool(optimize, true, "as in ScriptOptions");
DEFINE_double(lr, 0.05, "SGD's");
DEFINE_double(bucket_cap_mb, 25, "as in ddp::Options, like those below");
DEFINE_bool(gradient_as_bucket_view, false, "");
DEFINE_bool(find_unused_parameters, false, "");
DEFINE_bool(static_graph, false, "");

namespace lockstep::models::scripted {
namespace {

using checkpoint::Value;

ddp::Options OptionsFromFlags() {
  ddp::Options options;
  options.bucket_cap_mb = FLAGS_bucket_cap_mb;
  options.gradient_as_bucket_view = FLAGS_gradient_as_bucket_view;
  options.find_unused_parameters = FLAGS_find_unused_parameters;
  options.static_graph = FLAGS_static_graph;
  return options;
}

at::Tensor Logits(const c10::IValue& output) {
  if (output.isGenericDict()) return output.toGenericDict().at("logits").toTensor();
  return output.isTuple() ? output.toTupleRef().elements()[0].toTensor() : output.toTensor();
}

Value Train(ddp::DistributedDataParallel<ScriptModule>& ddp, const std::vector<Value>& batches) {
  torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(FLAGS_lr).momentum(0.9));
  std::vector<Value> losses;
  for (const Value& batch : batches) {
    const std::vector<Value>& items = batch.items();
    optimizer.zero_grad();
    const at::Tensor inputs = items.front().tensor();
    const c10::IValue output = items.size() == 2 ? ddp(inputs) : ddp(inputs, items[1].int_value());
    const at::Tensor loss = at::cross_entropy_loss(Logits(output), items.back().tensor());
    losses.emplace_back(loss.item<double>());
    loss.backward();
    optimizer.step();
  }
  return Value::List(std::move(losses));
}

absl::Status Run() {
  at::set_num_threads(1);
  comm::InitOptions options;
  options.backend = "gloo";
  options.init_method = FLAGS_init_method;
  options.rank = FLAGS_rank;
  options.world_size = FLAGS_world_size;
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value all, checkpoint::Load(FLAGS_batches));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> batches,
                            checkpoint::GetItems(all, {absl::StrCat("rank", FLAGS_rank)}));
  LoadOptions load;
  load.script.optimize = FLAGS_optimize;
  LOCKSTEP_ASSIGN_OR_RETURN(ScriptModule net, Load(FLAGS_module, load));
  if (FLAGS_rank == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, checkpoint::Load(FLAGS_state_dict));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net, state_dict));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group.get(), OptionsFromFlags()));
  torch::manual_seed(FLAGS_rank);  // for dropout
  LOCKSTEP_ASSIGN_OR_RETURN(const Value losses, TorchStatusOr("training", [&] { return Train(ddp, batches); }));
  LOCKSTEP_RETURN_IF_ERROR(
      checkpoint::Save(absl::StrCat(FLAGS_output, ".pt"),
                       Value::Dict({{"losses", losses}, {"state_dict", checkpoint::StateDict(*net)}})));
  return Save(absl::StrCat(FLAGS_output, ".ts"), net);
}

}  // namespace
}  // namespace lockstep::models::scripted

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  const absl::Status status = lockstep::models::scripted::Run();
  if (!status.ok()) std::cerr << "trainer: rank " << FLAGS_rank << ": " << status << std::endl;
  return status.ok() ? 0 : 1;
}
