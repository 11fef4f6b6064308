// One C++ rank that trains one of nets.h's networks under ddp::Wrap. Python's training.py is its counterpart.
//
//   trainer --net=mlp --rank=0 --world_size=2 --init_method=file:///folder/store --initial=initial.pt --output=rank0.pt
//
// Rank 0 starts from the state dict in --initial, and the other ranks get it from rank 0. Writes {"losses": [a float a
// backward], "state_dict": ...} to --output; if anything fails, exits with 1 and prints the error to standard error.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gflags/gflags.h>
#include <torch/optim/optimizer.h>

#include <iostream>
#include <memory>
#include <optional>
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
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/peer/nets.h"
#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"
#include "lockstep/models/resnet.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

DEFINE_string(net, "mlp", "mlp, resnet18, transformer, branches, recurrent or words");
DEFINE_int32(rank, 0, "this process's");
DEFINE_int32(world_size, 1, "ranks");
DEFINE_string(init_method, "", "where the ranks meet");
DEFINE_string(backend, "gloo", "as in comm::InitOptions");
DEFINE_double(timeout, 60, "seconds that meeting, or one collective, may take");
DEFINE_string(initial, "", "a state dict to start from");
DEFINE_string(output, "", "where to write what came out");
DEFINE_int32(steps, 20, "optimizer steps");
DEFINE_int32(accumulate, 1, "backward passes a step, of which the last one averages");
DEFINE_double(lr, 0.05, "the optimizer's");
DEFINE_bool(zero, false, "step with ZeroRedundancyOptimizer<AdamW> instead of SGD");
DEFINE_double(bucket_cap_mb, 25, "as in ddp::Options, like those below");
DEFINE_bool(gradient_as_bucket_view, false, "");
DEFINE_bool(find_unused_parameters, false, "");
DEFINE_bool(static_graph, false, "");
DEFINE_int32(virtual_ranks, 0, "");

namespace lockstep::ddp::peer {
namespace {

using checkpoint::Value;

Options OptionsFromFlags() {
  Options options;
  options.bucket_cap_mb = FLAGS_bucket_cap_mb;
  options.gradient_as_bucket_view = FLAGS_gradient_as_bucket_view;
  options.find_unused_parameters = FLAGS_find_unused_parameters;
  options.static_graph = FLAGS_static_graph;
  options.virtual_ranks = FLAGS_virtual_ranks;
  return options;
}

absl::Status LoadInitial(torch::nn::Module& module) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value initial, checkpoint::Load(FLAGS_initial));
  return checkpoint::LoadStateDict(module, initial);
}

absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(const std::vector<at::Tensor>& parameters,
                                                                       comm::ProcessGroup* group) {
  if (!FLAGS_zero) return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(FLAGS_lr).momentum(0.9));
  return zero::ZeroRedundancyOptimizer<optim::AdamW>::Create(parameters, optim::AdamWOptions(FLAGS_lr), group);
}

template <typename Ddp, typename Draw, typename Forward>
Value TrainSteps(Ddp& ddp, torch::optim::Optimizer& optimizer, const Draw& draw, const Forward& forward) {
  std::vector<Value> losses;
  for (int step = 0; step < FLAGS_steps; ++step) {
    optimizer.zero_grad();
    for (const int rank : ddp.VirtualRanks(step)) {
      for (int part = 0; part < FLAGS_accumulate; ++part) {
        std::optional<NoSync> no_sync;
        if (part + 1 < FLAGS_accumulate) no_sync.emplace(ddp);
        const Batch batch = draw(step * FLAGS_accumulate + part, rank);
        const at::Tensor loss = at::cross_entropy_loss(forward(ddp, batch), batch.targets);
        losses.emplace_back(loss.template item<double>());
        loss.backward();
      }
    }
    optimizer.step();
  }
  return Value::List(std::move(losses));
}

template <typename Net, typename Draw, typename Forward>
absl::Status Train(Net net, const Draw& draw, const Forward& forward) {
  comm::InitOptions options;
  options.backend = FLAGS_backend;
  options.init_method = FLAGS_init_method;
  options.rank = FLAGS_rank;
  options.world_size = FLAGS_world_size;
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(options));
  if (FLAGS_rank == 0) LOCKSTEP_RETURN_IF_ERROR(LoadInitial(*net));
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, Wrap(net, group.get(), OptionsFromFlags()));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto optimizer, MakeOptimizer(ddp.parameters(), group.get()));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value losses,
                            TorchStatusOr("training", [&] { return TrainSteps(ddp, *optimizer, draw, forward); }));
  return checkpoint::Save(FLAGS_output,
                          Value::Dict({{"losses", losses}, {"state_dict", checkpoint::StateDict(*ddp.module())}}));
}

absl::Status Run() {
  at::set_num_threads(1);
  const auto whole_batch = [](auto& ddp, const Batch& batch) { return ddp(batch); };
  const auto images = [](auto& ddp, const Batch& batch) { return ddp(batch.inputs); };
  if (FLAGS_net == "mlp") return Train(Mlp(), MlpImpl::Draw, whole_batch);
  if (FLAGS_net == "transformer") return Train(Transformer(), TransformerImpl::Draw, whole_batch);
  if (FLAGS_net == "branches") return Train(Branches(), BranchesImpl::Draw, whole_batch);
  if (FLAGS_net == "recurrent") return Train(Recurrent(), RecurrentImpl::Draw, whole_batch);
  if (FLAGS_net == "words") return Train(Words(), WordsImpl::Draw, whole_batch);
  if (FLAGS_net == "resnet18") return Train(models::ResNet18(10), DrawImages, images);
  return absl::InvalidArgumentError(absl::StrCat("--net=", FLAGS_net, " is none of nets.h"));
}

}  // namespace
}  // namespace lockstep::ddp::peer

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  const absl::Status status = lockstep::ddp::peer::Run();
  if (!status.ok()) std::cerr << "trainer: rank " << FLAGS_rank << ": " << status << std::endl;
  return status.ok() ? 0 : 1;
}
