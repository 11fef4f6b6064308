// Trains a 784-512-512-10 network on Fashion-MNIST, data-parallel.
//
//   bazel run //examples/fashion_mnist:train                     # two ranks on this machine
//   bazel run //examples/fashion_mnist:train -- --parallel=none  # one process, no DDP
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
#include <sys/stat.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/examples/fashion_mnist/trainer.h"
#include "lockstep/tools/launch/spawn.h"

DEFINE_string(parallel, "ddp", "ddp: one process a rank, gradients averaged; none: one process.");
DEFINE_int32(nproc_per_node, 2,
             "Ranks to start under --parallel=ddp; a launcher that has started this program decides itself.");
DEFINE_int64(epochs, 5, "How often to go through the training images.");
DEFINE_int64(batch_size, 1024, "Images a step, over all ranks.");
DEFINE_double(lr, 0.15,
              "SGD's highest learning rate: it rises to it over three tenths of the run and then falls to 0.");
DEFINE_double(momentum, 0.9, "SGD's momentum.");
DEFINE_int64(seed, 0, "Of the initial parameters and the order of images.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory,
              "The folder of the four IDX files, plain or in gzip.");
DEFINE_string(checkpoint_dir, "",
              "An existing folder for checkpoint.pt, which is replaced as training goes on; empty: none is kept.");
DEFINE_int64(checkpoint_every, 0, "Save a checkpoint every so many steps, beside those at the end of each epoch.");
DEFINE_bool(resume, false, "Go on from the checkpoint in --checkpoint_dir, in mid-epoch if it is from there.");
DEFINE_string(pretrained, "", "A .pt file with a state dict to start from.");
DEFINE_string(metrics_file, "", "A file for one JSON object a step, an epoch, and a run.");
DEFINE_bool(dry_run, false, "Check flags, data, checkpoint and ranks, run one batch, and write nothing.");
DEFINE_string(backend, "auto", "What the ranks communicate by: auto, gloo, or cpu:gloo.");
DEFINE_string(init_method, "env://", "Where they meet: env://, tcp://host:port or file:///path.");
DEFINE_double(timeout, 300, "Seconds that meeting, or one collective, may take.");

namespace lockstep::examples {
namespace {

absl::Status FlagError(absl::string_view flag, const std::string& value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": expected ", expected));
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::Status CheckFlags() {
  if (FLAGS_parallel != "ddp" && FLAGS_parallel != "none") return FlagError("parallel", FLAGS_parallel, "ddp or none");
  if (FLAGS_nproc_per_node < 1) return FlagError("nproc_per_node", absl::StrCat(FLAGS_nproc_per_node), "1 or more");
  if (FLAGS_epochs < 1) return FlagError("epochs", absl::StrCat(FLAGS_epochs), "1 or more");
  if (FLAGS_batch_size < 1) return FlagError("batch_size", absl::StrCat(FLAGS_batch_size), "1 or more");
  if (!(FLAGS_lr > 0)) return FlagError("lr", absl::StrCat(FLAGS_lr), "a positive number");
  if (!(FLAGS_momentum >= 0)) return FlagError("momentum", absl::StrCat(FLAGS_momentum), "0 or more");
  if (FLAGS_checkpoint_every < 0)
    return FlagError("checkpoint_every", absl::StrCat(FLAGS_checkpoint_every), "0 or more");
  if (!(FLAGS_timeout > 0)) return FlagError("timeout", absl::StrCat(FLAGS_timeout), "a positive number of seconds");
  if (!FLAGS_checkpoint_dir.empty() && !IsDirectory(FLAGS_checkpoint_dir)) {
    return FlagError("checkpoint_dir", FLAGS_checkpoint_dir, "an existing folder");
  }
  if (FLAGS_resume && FLAGS_checkpoint_dir.empty()) return FlagError("resume", "true", "--checkpoint_dir with it");
  if (FLAGS_checkpoint_every > 0 && FLAGS_checkpoint_dir.empty()) {
    return FlagError("checkpoint_every", absl::StrCat(FLAGS_checkpoint_every), "--checkpoint_dir with it");
  }
  return absl::OkStatus();
}

TrainConfig ConfigFromFlags() {
  TrainConfig config;
  config.epochs = FLAGS_epochs;
  config.batch_size = FLAGS_batch_size;
  config.lr = FLAGS_lr;
  config.momentum = FLAGS_momentum;
  config.seed = FLAGS_seed;
  config.data_dir = FLAGS_data_dir;
  config.checkpoint_dir = FLAGS_checkpoint_dir;
  config.checkpoint_every = FLAGS_checkpoint_every;
  config.resume = FLAGS_resume;
  config.pretrained = FLAGS_pretrained;
  config.metrics_file = FLAGS_metrics_file;
  config.dry_run = FLAGS_dry_run;
  return config;
}

absl::Status TrainAsRank() {
  comm::InitOptions options;
  options.backend = FLAGS_backend;
  options.init_method = FLAGS_init_method;
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group, comm::InitProcessGroup(options));
  const absl::Status status = Train(ConfigFromFlags(), group.get());
  return Annotate(status, absl::StrCat("rank ", group->rank()));
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags());
  if (FLAGS_parallel == "none") return Train(ConfigFromFlags(), nullptr);
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) { return TrainAsRank(); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  // A broken connection is one line from us; LibTorch would log the same twice more, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  gflags::SetUsageMessage("trains on Fashion-MNIST, data-parallel; see the top of train.cc");
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  absl::Status status;
  if (argc > 1) status = absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", argv[1], "\""));
  if (status.ok()) status = lockstep::examples::Run();
  if (!status.ok()) std::cerr << "train: " << status.message() << std::endl;
  return lockstep::launch::ExitCode(status);
}
