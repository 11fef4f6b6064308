// A step of elastic::ShardedOptimizer beside a plain optimizer's and one of ddp::zero, on the ranks of this host.
//
//   ./bazelw run //tools/bench:sharded_optimizer -- --ranks=4 --hidden=1024
//
// The three train the same network in turn, in blocks of steps. Prints a JSON line: the medians over the blocks of the
// slowest rank's seconds for a step, and the most bytes of optimizer state on a rank.

#include "lockstep/elastic/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gflags/gflags.h>
#include <stdlib.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/tools/bench/median.h"

DEFINE_int32(ranks, 4, "processes of this host, of one thread each");
DEFINE_int64(hidden, 1024,
             "the width of the network's two hidden layers; its inputs have 784 values, and its outputs 10");
DEFINE_int64(batch, 64, "samples of a rank in a step");
DEFINE_int32(steps, 20, "steps of a block");
DEFINE_int32(blocks, 15, "blocks of each optimizer, after one that is not counted");

namespace lockstep {
namespace {

using torch::optim::Adam;
using Sharded = elastic::ShardedOptimizer<Adam>;
using Zero = ddp::zero::ZeroRedundancyOptimizer<Adam>;

torch::nn::Sequential MakeNet() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(784, FLAGS_hidden), torch::nn::ReLU(),
                               torch::nn::Linear(FLAGS_hidden, FLAGS_hidden), torch::nn::ReLU(),
                               torch::nn::Linear(FLAGS_hidden, 10));
}

// One of the three.
struct Contender {
  std::string name;
  ddp::DistributedDataParallel<torch::nn::Sequential> net;
  torch::optim::Optimizer* optimizer;
  std::function<absl::Status()> step;  // once the gradients are there
  std::vector<double> seconds;         // of a step, for each block
};

// Returns the time of the slowest rank for one step.
absl::StatusOr<double> TimeBlock(comm::ProcessGroup& group, Contender& contender, const at::Tensor& inputs,
                                 const at::Tensor& targets) {
  LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
  const absl::Time begin = absl::Now();
  for (int i = 0; i < FLAGS_steps; ++i) {
    contender.optimizer->zero_grad();
    at::cross_entropy_loss(contender.net.forward(inputs), targets).backward();
    LOCKSTEP_RETURN_IF_ERROR(contender.step());
  }
  const at::Tensor seconds = at::full({1}, absl::ToDoubleSeconds(absl::Now() - begin) / FLAGS_steps, at::kDouble);
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(seconds, comm::ReduceOp::kMax));
  return seconds.item<double>();
}

// On the rank that has the most.
absl::StatusOr<int64_t> StateBytes(comm::ProcessGroup& group, const torch::optim::Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const auto& entry : optimizer.state()) {
    const auto& state = static_cast<const torch::optim::AdamParamState&>(*entry.second);
    bytes += static_cast<int64_t>(state.exp_avg().nbytes() + state.exp_avg_sq().nbytes());
  }
  const at::Tensor most = at::full({1}, bytes, at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(most, comm::ReduceOp::kMax));
  return most.item<int64_t>();
}

absl::Status Measure(comm::ProcessGroup& group, std::vector<Contender> contenders) {
  torch::manual_seed(group.rank());
  const at::Tensor inputs = at::randn({FLAGS_batch, 784}), targets = at::randint(10, {FLAGS_batch}, at::kLong);
  std::optional<Progress> progress;
  if (group.rank() == 0) progress.emplace("sharded_optimizer");
  for (int block = 0; block <= FLAGS_blocks; ++block) {
    for (Contender& contender : contenders) {
      if (progress) progress->Doing(absl::StrCat("block ", block, " of ", FLAGS_blocks, ", ", contender.name));
      LOCKSTEP_ASSIGN_OR_RETURN(const double seconds, TimeBlock(group, contender, inputs, targets));
      if (block > 0) contender.seconds.push_back(seconds);
    }
  }
  nlohmann::ordered_json line = {{"ranks", group.size()}, {"hidden", FLAGS_hidden}};
  for (const Contender& contender : contenders) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, StateBytes(group, *contender.optimizer));
    line[contender.name] = {{"seconds", Median(contender.seconds)}, {"state_bytes", bytes}};
    const std::vector<at::Tensor> ours = contender.net.parameters(), first = contenders[0].net.parameters();
    if (!std::equal(ours.begin(), ours.end(), first.begin(), first.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); })) {
      return absl::InternalError(absl::StrCat(contender.name, ": other parameters than ", contenders[0].name));
    }
  }
  if (group.rank() == 0) std::cout << line << std::endl;
  return absl::OkStatus();
}

absl::Status RunRank() {
  at::set_num_threads(1);
  elastic::Options options;
  options.timeout = absl::Minutes(2);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join(options));
  torch::nn::Sequential net = MakeNet();
  Sharded sharded(net->parameters(), torch::optim::AdamOptions(1e-3));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *net));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", sharded));
  return world->Run([&](comm::ProcessGroup* group) -> absl::Status {
    ddp::Options survives;
    LOCKSTEP_ASSIGN_OR_RETURN(auto with_sharded, elastic::Wrap(net, group, survives));
    LOCKSTEP_ASSIGN_OR_RETURN(auto with_plain, ddp::Wrap(MakeNet(), group));
    LOCKSTEP_ASSIGN_OR_RETURN(auto with_zero, ddp::Wrap(MakeNet(), group));
    Adam plain(with_plain.parameters(), torch::optim::AdamOptions(1e-3));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto zero,
                              Zero::Create(with_zero.parameters(), torch::optim::AdamOptions(1e-3), group));
    std::vector<Contender> contenders;
    contenders.push_back({"plain", std::move(with_plain), &plain, [&] { return plain.step(), absl::OkStatus(); }, {}});
    contenders.push_back(
        {"zero", std::move(with_zero), zero.get(), [&] { return zero->step(), absl::OkStatus(); }, {}});
    contenders.push_back({"elastic_sharded",
                          std::move(with_sharded),
                          &sharded,
                          [&] { return world->Commit([&] { sharded.step(); }); },
                          {}});
    absl::Status status;
    status.Update(TorchStatus("sharded_optimizer", [&] { status = Measure(*group, std::move(contenders)); }));
    return status;
  });
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"ranks", FLAGS_ranks * 1.0, 1, 1024},
                                        {"hidden", FLAGS_hidden * 1.0, 1, 1 << 16},
                                        {"batch", FLAGS_batch * 1.0, 1, 1 << 16},
                                        {"steps", FLAGS_steps * 1.0, 1, 1 << 16},
                                        {"blocks", FLAGS_blocks * 1.0, 1, 1 << 16}}));
  return launch::Spawn(FLAGS_ranks, [](int) { return RunRank(); });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ParseCommandLine(
      argc, argv,
      {.source = __FILE__,
       .description =
           "Measures a step of elastic::ShardedOptimizer<Adam>, beside Adam and ZeroRedundancyOptimizer<Adam>."});
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << absl::StrCat("sharded_optimizer: ", status.message(), "\n");
  return lockstep::launch::ExitCode(status);
}
