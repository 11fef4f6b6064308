// Trains an image classifier on ImageNet, or on any folder of images: the counterpart of PyTorch's ImageNet example,
// with its flags. README.md has more commands, and what they print.
//
//   bazel-bin/examples/imagenet/train -a resnet50 /data/imagenet                              # one process
//   bazel-bin/launch/launch --standalone --nproc_per_node=4 bazel-bin/examples/imagenet/train
//     --virtual-ranks=8 --resume=auto /data/imagenet                                          # kill ranks as you like

#include <c10/util/Logging.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/elastic/world.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/run.h"
#include "lockstep/examples/program/flag_table.h"
#include "lockstep/examples/ranks/devices.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/launch/link/agent_link.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::examples::imagenet {
namespace {

constexpr char kDescription[] = R"(
Trains an image classifier on FOLDER, which has train/ and val/ with one folder
for each class: the counterpart of PyTorch's ImageNet example, with its flags.

  train -a resnet50 /data/imagenet                     one process
  train --multiprocessing-distributed /data/imagenet   a rank for each GPU
  launch --nproc_per_node=2 train /data/imagenet       under a launcher
  train --dummy --dummy-train-images=256 --dummy-val-images=64 --image-size=64
      -b32 --epochs=1                                  without data, some seconds
)";

ProgramUsage Usage() {
  ProgramUsage usage;
  usage.arguments = "[FOLDER]";
  usage.max_arguments = 1;
  usage.description = kDescription;
  usage.aliases = {{"-a", "arch"},       {"-b", "batch_size"},     {"-e", "evaluate"},       {"-j", "workers"},
                   {"-p", "print_freq"}, {"--wd", "weight_decay"}, {"--learning-rate", "lr"}};
  return usage;
}

absl::StatusOr<c10::Device> ChooseDevice(const TrainConfig& config, const comm::RankEnvironment& environment) {
  if (config.gpu < 0) return RankDevices(environment)[0];
  const c10::DeviceIndex gpus = torch::cuda::device_count();
  if (config.gpu >= gpus) return FlagError("gpu", config.gpu, absl::StrCat("one of this machine's ", gpus));
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(config.gpu));
}

// A rank that this program has started has its number and its meeting place from the environment.
comm::ExplicitRank ExplicitRankOf(const TrainConfig& config) {
  if (config.multiprocessing_distributed) return {};
  return {config.rank, config.world_size};
}

// InitOptions::backend. The ranks sum their counts in the CPU's memory, which NCCL does not take.
std::string BackendOf(const TrainConfig& config) {
  return config.dist_backend == "nccl" ? "cpu:gloo,cuda:nccl" : config.dist_backend;
}

// Trains as one rank: of a launcher, of this program, of the ranks that --rank and --world-size number, or alone. With
// --virtual-ranks the result does not depend on who trains, so the ranks of Lockstep's launch regroup when one dies.
absl::Status TrainAsRank(const TrainConfig& config, const comm::RankEnvironment& environment) {
  elastic::Options options;
  options.explicit_rank = ExplicitRankOf(config);
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, ChooseDevice(config, environment));
  const bool is_alone = !environment.rank.has_value();
  if (is_alone) {
    options.explicit_rank = {};
  } else if (!config.multiprocessing_distributed) {
    options.init_method = config.dist_url;
  }
  const comm::ExplicitRank& given = options.explicit_rank;
  const bool is_placed = given.rank >= 0 || given.world_size >= 0 || options.init_method != "env://";
  options.regroups = launch::AgentLink::IsOffered() && !is_placed && (config.virtual_ranks > 0 || config.elastic);
  options.backend = is_alone && config.virtual_ranks == 0 ? "auto" : BackendOf(config);
  options.timeout = absl::Seconds(config.dist_timeout);
  const absl::Status status = Train(config, options, environment, device);
  return options.regroups || is_alone ? status : OfRank(status, *environment.rank);
}

// --world-size and --rank count nodes here, and --dist-url has the address of node 0.
absl::StatusOr<launch::SpawnOptions> SpawnOptionsOf(const TrainConfig& config) {
  launch::SpawnOptions options;
  options.grace = absl::Minutes(1);          // for a checkpoint, when the training is told to stop
  options.failure_grace = absl::Seconds(2);  // ranks that have lost another cannot make one
  if (config.world_size > 1) {
    options.nnodes = config.world_size;
    options.node_rank = config.rank;
  }
  absl::string_view address = config.dist_url;
  if (!absl::ConsumePrefix(&address, "tcp://")) return options;
  const size_t colon = address.rfind(':');
  if (colon == address.npos || !absl::SimpleAtoi(address.substr(colon + 1), &options.master_port)) {
    return FlagError("dist-url", config.dist_url, "tcp://host:port");
  }
  options.master_addr = std::string(address.substr(0, colon));
  return options;
}

absl::Status Run(const TrainConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckConfig(config));
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment,
                            comm::ReadRankEnvironment(comm::ProcessEnvironment, ExplicitRankOf(config)));
  // With --multiprocessing-distributed, --rank numbers nodes, and the process of node 0 will start rank 0.
  const int first = environment.rank.value_or(config.multiprocessing_distributed ? config.rank : 0);
  if (first <= 0) LOCKSTEP_RETURN_IF_ERROR(CheckOutputs(config));
  if (config.multiprocessing_distributed) {
    LOCKSTEP_ASSIGN_OR_RETURN(const launch::SpawnOptions options, SpawnOptionsOf(config));
    const int gpus = torch::cuda::device_count();
    const auto train = [&](int) { return TrainAsRank(config, environment); };  // a rank has run main() up to here too
    return launch::Spawn(gpus > 0 ? gpus : config.cpu_ranks, train, options);
  }
  if (config.world_size > 1 && !environment.rank) return FlagError("world-size", config.world_size, "--rank with it");
  if (first == 0 && config.seed) {
    std::cerr << "warning: --seed makes cuDNN deterministic, which can slow training down considerably\n";
  }
  if (first == 0 && config.gpu >= 0) std::cerr << "warning: --gpu means one GPU, without data parallelism on it\n";
  return TrainAsRank(config, environment);
}

}  // namespace
}  // namespace lockstep::examples::imagenet

int main(int argc, char** argv) {
  using namespace lockstep;
  // GPUs have the numbers that nvidia-smi gives them.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  // A broken connection is one line from us; LibTorch would log the same twice more, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  examples::imagenet::TrainConfig config;
  examples::FlagTable flags = examples::imagenet::FlagsOf(config);
  ProgramUsage usage = examples::imagenet::Usage();
  flags.Register(usage);
  const std::vector<std::string> arguments = ParseCommandLine(argc, argv, usage);
  absl::Status status = flags.Check();
  if (!arguments.empty() && !config.data.empty()) {
    status.Update(absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", arguments[0], "\" beside --data")));
  } else if (!arguments.empty()) {
    config.data = arguments[0];
  }
  if (status.ok()) status = examples::imagenet::Run(config);
  if (status.ok()) return 0;
  std::cerr << absl::StrCat("train: ", Printable(status.message()), "\n");
  launch::ReportError(status);
  if (examples::imagenet::IsResumable(status)) return elastic::kResumableExitCode;
  return config.multiprocessing_distributed ? launch::ExitCode(status) : 1;
}
