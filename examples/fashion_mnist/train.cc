// Trains a 784-512-512-10 network on Fashion-MNIST, data-parallel.
//
//   bazel run //examples/fashion_mnist:train                     # two ranks on this machine
//   bazel run //examples/fashion_mnist:train -- --parallel=none  # one process, no DDP
//   bazel run //examples/fashion_mnist:train -- --parallel=dp    # one process, several devices: all visible GPUs, as
//   CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER say, or slots of the CPU; by the recipe of PyTorch's tutorial
//   bazel run //examples/fashion_mnist:train -- --parallel=compare   # that recipe three times, and a table
//   bazel run //examples/fashion_mnist:train -- --checkpoint_dir=/tmp/run --checkpoint_every=20   # later with --resume
//   bazel-bin/tools/launch/launch --nproc_per_node=2 bazel-bin/examples/fashion_mnist/train       # or under torchrun
//   --no-python
//
// prints
//
//   epoch   train loss   test accuracy    images/s   seconds
//       1       1.1771          0.7965       60029       1.0
//   ...
//       5       0.2802          0.8779       54164       1.1
//   done: test accuracy 0.8779 after 5 epochs

#include <c10/util/Logging.h>
#include <gflags/gflags.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/examples/fashion_mnist/comparison.h"
#include "lockstep/examples/fashion_mnist/trainer.h"
#include "lockstep/examples/program/flag_error.h"
#include "lockstep/examples/program/output_file.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/tools/launch/spawn.h"

DEFINE_string(parallel, "ddp",
              "ddp: one process a rank, gradients averaged; dp: one process on several devices; none: one process; "
              "compare: none, dp and ddp, one after the other, and a table of them.");
DEFINE_string(
    recipe, "",
    "tuned: momentum, a schedule, shuffled and normalised images; tutorial: plain SGD at a low rate, images in "
    "their order. Empty: tutorial for dp and compare, else tuned.");
DEFINE_int32(cpu_slots, 2, "How many devices the CPU counts for under --parallel=dp where there is no GPU.");
DEFINE_int32(nproc_per_node, 2,
             "Ranks to start under --parallel=ddp; a launcher that has started this program decides itself.");
DEFINE_int64(epochs, 5, "How often to go through the training images.");
DEFINE_int64(batch_size, 1024, "Images a step, over all ranks.");
DEFINE_double(
    lr, 0,
    "SGD's learning rate; 0: the recipe's, 0.15 or 0.002. The tuned recipe rises to it over three tenths of the "
    "run and then falls to 0.");
DEFINE_double(momentum, -1, "SGD's momentum; -1: the recipe's, 0.9 or 0.");
DEFINE_int64(seed, 0, "Seed for the initial parameters and the image order.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory,
              "The folder of the four IDX files, plain or in gzip.");
DEFINE_string(checkpoint_dir, "",
              "An existing folder for checkpoint.pt, which is replaced as training goes on; empty: none is kept.");
DEFINE_int64(checkpoint_every, 0, "Save a checkpoint every so many steps, beside those at the end of each epoch.");
DEFINE_string(
    resume, "false",
    "Go on from the checkpoint in --checkpoint_dir, in mid-epoch if it is from there; auto: or from the start "
    "where there is none yet.");
DEFINE_bool(terminate_on_nan, false, "End the run when a rank's loss is NaN or infinite, which else is reported once.");
DEFINE_string(pretrained, "", "A .pt file with a state dict to start from.");
DEFINE_string(metrics_file, "", "A file for one JSON object a step, an epoch, and a run.");
DEFINE_bool(dry_run, false, "Check flags, data, checkpoint and ranks, run one batch, and write nothing.");
DEFINE_string(backend, "auto", "The ranks' backend: auto, shm, gloo or hierarchical.");
DEFINE_string(init_method, "env://", "Where they meet: env://, tcp://host:port or file:///path.");
DEFINE_double(timeout, 300, "Seconds that meeting, or one collective, may take.");

namespace lockstep::examples {
namespace {

ProgramUsage Usage() {
  ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Trains a 784-512-512-10 network on Fashion-MNIST: on two ranks of this machine,
as one of the ranks that a launcher starts, or on several devices of one process.

  train                                      two ranks on this machine
  train --parallel=none                      one process
  train --checkpoint_dir=/tmp/run --resume   goes on from /tmp/run/checkpoint.pt
  launch --nproc_per_node=2 train            under a launcher, such as torchrun
)";
  usage.groups = {
      {"How it runs", {"parallel", "nproc_per_node", "cpu_slots", "dry_run"}},
      {"Training", {"recipe", "epochs", "batch_size", "lr", "momentum", "seed", "pretrained", "terminate_on_nan"}},
      {"Files", {"data_dir", "checkpoint_dir", "checkpoint_every", "resume", "metrics_file"}},
      {"Ranks", {"backend", "init_method", "timeout"}},
  };
  usage.switches = {"resume"};
  return usage;
}

std::optional<Resume> ResumeFromFlag() {
  bool resume;
  if (FLAGS_resume == "auto") return Resume::kAuto;
  if (!absl::SimpleAtob(FLAGS_resume, &resume)) return std::nullopt;
  return resume ? Resume::kYes : Resume::kNo;
}

absl::Status CheckFlags() {
  const std::set<std::string> parallel = {"ddp", "dp", "none", "compare"}, recipes = {"", "tuned", "tutorial"};
  if (!parallel.count(FLAGS_parallel)) return FlagError("parallel", FLAGS_parallel, "ddp, dp, none or compare");
  if (!recipes.count(FLAGS_recipe)) return FlagError("recipe", FLAGS_recipe, "tuned or tutorial");
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"cpu_slots", FLAGS_cpu_slots * 1.0, 1, 4096},
                                        {"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1},
                                        {"epochs", FLAGS_epochs * 1.0, 1},
                                        {"batch_size", FLAGS_batch_size * 1.0, 1},
                                        {"lr", FLAGS_lr, 0},
                                        {"momentum", FLAGS_momentum == -1 ? 0 : FLAGS_momentum, 0},
                                        {"checkpoint_every", FLAGS_checkpoint_every * 1.0, 0}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckSeconds("timeout", FLAGS_timeout));
  if (FLAGS_parallel == "compare" && !(FLAGS_checkpoint_dir.empty() && FLAGS_metrics_file.empty())) {
    return FlagError("parallel", FLAGS_parallel, "no --checkpoint_dir and no --metrics_file with it");
  }
  if (!ResumeFromFlag()) return FlagError("resume", FLAGS_resume, "true, false or auto");
  if (*ResumeFromFlag() != Resume::kNo && FLAGS_checkpoint_dir.empty()) {
    return FlagError("resume", FLAGS_resume, "--checkpoint_dir with it");
  }
  if (FLAGS_checkpoint_every > 0 && FLAGS_checkpoint_dir.empty()) {
    return FlagError("checkpoint_every", FLAGS_checkpoint_every, "--checkpoint_dir with it");
  }
  return absl::OkStatus();
}

// Whether what rank 0 writes can be written, before any rank starts. Other ranks may be on hosts without these folders.
absl::Status CheckOutputs() {
  const std::optional<std::string> rank = comm::ProcessEnvironment("RANK");
  if (rank && *rank != "0") return absl::OkStatus();
  if (!FLAGS_checkpoint_dir.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckOutputFolder(absl::StrCat("--checkpoint_dir=", FLAGS_checkpoint_dir), FLAGS_checkpoint_dir));
  }
  if (FLAGS_metrics_file.empty()) return absl::OkStatus();
  return CheckOutputFile(absl::StrCat("--metrics_file=", FLAGS_metrics_file), FLAGS_metrics_file);
}

Recipe RecipeFromFlags() {
  const bool is_tutorial =
      FLAGS_recipe.empty() ? FLAGS_parallel == "dp" || FLAGS_parallel == "compare" : FLAGS_recipe == "tutorial";
  Recipe recipe = is_tutorial ? kTutorial : kTuned;
  if (FLAGS_lr > 0) recipe.lr = FLAGS_lr;
  if (FLAGS_momentum >= 0) recipe.momentum = FLAGS_momentum;
  return recipe;
}

TrainConfig ConfigFromFlags() {
  TrainConfig config;
  config.epochs = FLAGS_epochs;
  config.batch_size = FLAGS_batch_size;
  config.recipe = RecipeFromFlags();
  config.data_parallel = FLAGS_parallel == "dp";
  config.cpu_slots = FLAGS_cpu_slots;
  config.seed = FLAGS_seed;
  config.data_dir = FLAGS_data_dir;
  config.checkpoint_dir = FLAGS_checkpoint_dir;
  config.checkpoint_every = FLAGS_checkpoint_every;
  config.resume = *ResumeFromFlag();
  config.terminate_on_nan = FLAGS_terminate_on_nan;
  config.pretrained = FLAGS_pretrained;
  config.metrics_file = FLAGS_metrics_file;
  config.dry_run = FLAGS_dry_run;
  return config;
}

absl::Status TrainAsRank(const TrainConfig& config) {
  comm::InitOptions options;
  options.backend = FLAGS_backend;
  options.init_method = FLAGS_init_method;
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group, comm::InitProcessGroup(options));
  return FinishRank(group.get(), Train(config, group.get()));
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags());
  LOCKSTEP_RETURN_IF_ERROR(CheckOutputs());
  const TrainConfig config = ConfigFromFlags();
  if (FLAGS_parallel == "compare") {
    TrainConfig on_devices = config;
    on_devices.data_parallel = true;
    return Compare({{"none", 1, config, [](const TrainConfig& alone) { return Train(alone, nullptr); }},
                    {"dp", 1, on_devices, [](const TrainConfig& dp) { return Train(dp, nullptr); }},
                    {"ddp", FLAGS_nproc_per_node, config, &TrainAsRank}});
  }
  if (FLAGS_parallel != "ddp") return Train(config, nullptr);
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [&](int) { return TrainAsRank(config); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  // GPUs have the numbers that nvidia-smi gives them.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  // A broken connection is one line from us; LibTorch would log the same twice more, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  lockstep::ParseCommandLine(argc, argv, lockstep::examples::Usage());
  const absl::Status status = lockstep::examples::Run();
  if (!status.ok()) std::cerr << "train: " << lockstep::Printable(status.message()) << std::endl;
  return lockstep::launch::ExitCode(status);
}
