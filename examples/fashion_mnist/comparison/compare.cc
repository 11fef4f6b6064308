// Trains the network of //examples/fashion_mnist:train in several ways, with per-step metrics:
//
//   bazel run //examples/fashion_mnist/comparison:compare                     # in all three ways, and a table
//   bazel run //examples/fashion_mnist/comparison:compare -- --parallel=none  # one process, no DDP
//   bazel run //examples/fashion_mnist/comparison:compare -- --parallel=dp    # one process on several devices: all
//   visible GPUs, as CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER say, or slots of the CPU
//   bazel run //examples/fashion_mnist/comparison:compare -- --parallel=ddp --metrics_file=/tmp/metrics
//
// The table looks like this. All three ways train by the recipe of PyTorch's tutorial on DataParallel, which learns
// slowly:
//
//   parallel   processes   train loss   test accuracy    images/s   seconds
//       none           1       1.9741          0.5432       41234       7.3
//   ...

#include <c10/util/Logging.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/fashion_mnist/comparison/config.h"
#include "lockstep/examples/fashion_mnist/comparison/trainer.h"
#include "lockstep/examples/fashion_mnist/comparison/ways.h"
#include "lockstep/examples/program/flag_table.h"
#include "lockstep/examples/program/output_file.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::examples {
namespace {

constexpr char kDescription[] = R"(
Trains a 784-512-512-10 network on Fashion-MNIST in one process, on several
devices of one process and on two ranks, and prints a table.

  compare                                  the three ways, one after the other
  compare --parallel=none                  one process
  compare --parallel=ddp                   two ranks on this machine
  launch --nproc_per_node=2 compare --parallel=ddp    under a launcher
)";

// Checks whether rank 0's file can be written, before any rank starts. Other ranks may be on hosts without its folder.
absl::Status CheckOutputs(const TrainConfig& config) {
  const std::optional<std::string> rank = comm::ProcessEnvironment("RANK");
  if (config.metrics_file.empty() || (rank && *rank != "0")) return absl::OkStatus();
  return CheckOutputFile(absl::StrCat("--metrics_file=", config.metrics_file), config.metrics_file);
}

absl::Status TrainAsRank(const TrainConfig& config) {
  comm::InitOptions options;
  options.backend = config.backend;
  options.init_method = config.init_method;
  options.timeout = absl::Seconds(config.timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group, comm::InitProcessGroup(options));
  return FinishRank(group.get(), Train(config, group.get()));
}

absl::Status TrainAlone(const TrainConfig& config) { return Train(config, /*group=*/nullptr); }

absl::Status CompareAll(TrainConfig config) {
  if (config.recipe == RecipeName::kDefault) config.recipe = RecipeName::kTutorial;
  TrainConfig none = config, dp = config, ddp = config;
  none.parallel = Parallel::kNone;
  dp.parallel = Parallel::kDp;
  ddp.parallel = Parallel::kDdp;
  return Compare(
      {{"none", 1, none, &TrainAlone}, {"dp", 1, dp, &TrainAlone}, {"ddp", config.nproc_per_node, ddp, &TrainAsRank}});
}

absl::Status Run(const TrainConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckConfig(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckOutputs(config));
  if (config.parallel == Parallel::kCompare) return CompareAll(config);
  if (config.parallel != Parallel::kDdp) return TrainAlone(config);
  return launch::SpawnUnlessLaunched(config.nproc_per_node, [&](int) { return TrainAsRank(config); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  // GPUs have the numbers that nvidia-smi gives them.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  // A broken connection is one line from us; LibTorch would log the same twice more, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  lockstep::examples::TrainConfig config;
  lockstep::examples::FlagTable flags = lockstep::examples::FlagsOf(config);
  lockstep::ProgramUsage usage;
  usage.description = lockstep::examples::kDescription;
  flags.Register(usage);
  lockstep::ParseCommandLine(argc, argv, usage);
  absl::Status status = flags.Check();
  if (status.ok()) status = lockstep::examples::Run(config);
  if (!status.ok()) std::cerr << absl::StrCat("compare: ", lockstep::Printable(status.message()), "\n");
  return lockstep::launch::ExitCode(status);
}
