// Trains an image classifier on ImageNet, or on any folder of images: the counterpart of PyTorch's ImageNet example,
// with its flags.
//
//   bazel-bin/examples/imagenet/train -a resnet50 /data/imagenet                              # one process
//   bazel-bin/examples/imagenet/train --multiprocessing-distributed /data/imagenet            # a rank for each GPU
//   bazel-bin/tools/launch/launch --nproc_per_node=2 bazel-bin/examples/imagenet/train /data/imagenet
//   srun bazel-bin/examples/imagenet/train /data/imagenet                                     # or torchrun, mpirun
//   bazel-bin/examples/imagenet/train --dummy --dummy-train-images=256 --dummy-val-images=64 --image-size=64 -b32
//     --epochs=1                                                                              # without data
//
// README.md has more, and what it prints.

#include <c10/util/Logging.h>
#include <gflags/gflags.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/trainer.h"
#include "lockstep/examples/program/flag_error.h"
#include "lockstep/examples/ranks/devices.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/tools/launch/report.h"
#include "lockstep/tools/launch/spawn.h"

DEFINE_string(data, "", "The folder of train/ and val/, each with one folder a class; also as the only argument.");
DEFINE_bool(dummy, false, "Images of noise instead of --data.");
DEFINE_int64(dummy_train_images, 1281167, "How many of them to train on an epoch.");
DEFINE_int64(dummy_val_images, 50000, "How many of them to validate on.");
DEFINE_int64(image_size, 224, "Height and width that images are cropped to.");
DEFINE_int64(num_classes, 0, "Classes of the network; 0: as many as train/ has, 1000 for --dummy.");
DEFINE_int32(workers, 4, "Threads of a node that make images; its ranks share them.");
DEFINE_int64(max_skipped, 0, "How many images of an epoch may be left out, and named, because they cannot be read.");
DEFINE_bool(scaled_decode, false, "Decode large JPEGs at 1/2, 1/4 or 1/8: sooner, but not to Python's pixels.");

DEFINE_string(arch, "resnet18", "The network, by torchvision's name.");
DEFINE_string(pretrained, "", "A .pt file whose parameters to start from, such as torchvision's.");
DEFINE_bool(channels_last, false, "Keep images and weights in the memory format that convolutions are fastest in.");
DEFINE_bool(mkldnn, false, "Keep activations in oneDNN's blocked layout (CPU, float32): faster for large images.");
DEFINE_string(amp, "", "bf16 or fp16: compute in it where that is safe. fp16 needs a GPU.");
DEFINE_double(ema_decay, 0, "Validate an average of weights that moves by 1 - this each step; 0: the weights.");

DEFINE_int64(epochs, 90, "How often to go through the training images.");
DEFINE_int64(start_epoch, 0, "The first epoch, where there is no --resume to say.");
DEFINE_int64(batch_size, 256, "Images a batch of a node; its ranks share them.");
DEFINE_int64(accum_steps, 1, "Batches to a step of the optimizer.");
DEFINE_double(lr, 0.1, "SGD's learning rate.");
DEFINE_double(momentum, 0.9, "SGD's momentum.");
DEFINE_double(weight_decay, 1e-4, "SGD's weight decay.");
DEFINE_double(label_smoothing, 0, "The share of a target that goes to all classes alike.");
DEFINE_string(schedule, "step", "step: a tenth of the learning rate every 30 epochs; cosine: down to 0.");
DEFINE_int64(warmup_epochs, 0, "Epochs in which the learning rate rises to --lr.");
DEFINE_string(seed, "",
              "Seed for the initial weights, the image order and augmentation; empty: the weights differ each run.");

DEFINE_bool(terminate_on_nan, false, "End the run when a rank's loss is NaN or infinite, which else is reported once.");

DEFINE_string(checkpoint_dir, ".", "A folder for checkpoint.pt and model_best.pt.");
DEFINE_int64(checkpoint_every, 0, "Save every so many steps, too; 0: only at the end of each epoch.");
DEFINE_string(resume, "",
              "The checkpoint to go on from, in mid-epoch if it is from there; auto: the checkpoint.pt in "
              "--checkpoint_dir, or from the start where there is none yet.");
DEFINE_bool(evaluate, false, "Validate, and do not train.");
DEFINE_bool(dry_run, false, "Check flags, paths, device, memory and the first batch, and write nothing.");

DEFINE_int64(print_freq, 10, "How many batches there are to a line.");
DEFINE_string(json_file, "", "A file for one JSON object a line.");
DEFINE_string(tensorboard_dir, "", "A folder for an event file that TensorBoard reads.");
DEFINE_string(trace_file, "", "A Chrome trace of some of rank 0's steps.");
DEFINE_int64(trace_begin, 5, "The step after which it begins.");
DEFINE_int64(trace_steps, 5, "How many steps it has.");

DEFINE_bool(multiprocessing_distributed, false, "Start a rank for each GPU, or --cpu-ranks without any.");
DEFINE_int32(cpu_ranks, 2, "How many ranks that starts on a machine without GPUs.");
DEFINE_int32(world_size, -1, "How many ranks there are; with --multiprocessing-distributed how many nodes.");
DEFINE_int32(rank, -1, "Which of them this is.");
DEFINE_string(dist_url, "env://", "Where ranks meet: env://, tcp://host:port or file:///path.");
DEFINE_string(dist_backend, "auto", "Their backend: auto, shm, gloo, hierarchical or nccl.");
DEFINE_double(dist_timeout, 1800, "Seconds that meeting, or one collective, may take.");
DEFINE_int32(gpu, -1, "The GPU to use; -1: the one of the local rank.");

namespace lockstep::examples::imagenet {
namespace {

ProgramUsage Usage() {
  ProgramUsage usage;
  usage.source = __FILE__;
  usage.arguments = "[FOLDER]";
  usage.max_arguments = 1;
  usage.description = R"(
Trains an image classifier on FOLDER, which has train/ and val/ with one folder
a class: the counterpart of PyTorch's ImageNet example, with its flags.

  train -a resnet50 /data/imagenet                     one process
  train --multiprocessing-distributed /data/imagenet   a rank for each GPU
  launch --nproc_per_node=2 train /data/imagenet       under a launcher
  train --dummy --dummy-train-images=256 --dummy-val-images=64 --image-size=64
      -b32 --epochs=1                                  without data, some seconds
)";
  usage.groups = {
      {"Data",
       {"data", "dummy", "dummy_train_images", "dummy_val_images", "image_size", "num_classes", "workers",
        "max_skipped", "scaled_decode"}},
      {"Network", {"arch", "pretrained", "channels_last", "mkldnn", "amp", "ema_decay"}},
      {"Training",
       {"epochs", "start_epoch", "batch_size", "accum_steps", "lr", "momentum", "weight_decay", "label_smoothing",
        "schedule", "warmup_epochs", "seed", "terminate_on_nan"}},
      {"Checkpoints", {"checkpoint_dir", "checkpoint_every", "resume", "evaluate", "dry_run"}},
      {"Output", {"print_freq", "json_file", "tensorboard_dir", "trace_file", "trace_begin", "trace_steps"}},
      {"Ranks",
       {"multiprocessing_distributed", "cpu_ranks", "world_size", "rank", "dist_url", "dist_backend", "dist_timeout",
        "gpu"}},
  };
  usage.aliases = {{"-a", "arch"},       {"-b", "batch_size"},     {"-e", "evaluate"},       {"-j", "workers"},
                   {"-p", "print_freq"}, {"--wd", "weight_decay"}, {"--learning-rate", "lr"}};
  return usage;
}

absl::StatusOr<Amp> AmpFromFlag() {
  if (FLAGS_amp.empty()) return Amp::kNone;
  if (FLAGS_amp == "bf16") return Amp::kBFloat16;
  if (FLAGS_amp == "fp16") return Amp::kHalf;
  return FlagError("amp", FLAGS_amp, "bf16 or fp16");
}

absl::StatusOr<Schedule> ScheduleFromFlag() {
  if (FLAGS_schedule == "step") return Schedule::kStep;
  if (FLAGS_schedule == "cosine") return Schedule::kCosine;
  return FlagError("schedule", FLAGS_schedule, "step or cosine");
}

absl::StatusOr<std::optional<int64_t>> SeedFromFlag() {
  int64_t seed;
  if (FLAGS_seed.empty()) return std::nullopt;
  if (!absl::SimpleAtoi(FLAGS_seed, &seed)) return FlagError("seed", FLAGS_seed, "a whole number");
  return seed;
}

void TakeInput(TrainConfig& config) {
  config.data = FLAGS_data;
  config.dummy = FLAGS_dummy;
  config.dummy_train_images = FLAGS_dummy_train_images;
  config.dummy_val_images = FLAGS_dummy_val_images;
  config.image_size = FLAGS_image_size;
  config.scaled_decode = FLAGS_scaled_decode;
  config.num_classes = FLAGS_num_classes;
  config.workers = FLAGS_workers;
  config.max_skipped = FLAGS_max_skipped;
}

void TakeTraining(TrainConfig& config) {
  config.arch = FLAGS_arch;
  config.pretrained = FLAGS_pretrained;
  config.channels_last = FLAGS_channels_last;
  config.mkldnn = FLAGS_mkldnn;
  config.ema_decay = FLAGS_ema_decay;
  config.epochs = FLAGS_epochs;
  config.start_epoch = FLAGS_start_epoch;
  config.batch_size = FLAGS_batch_size;
  config.accum_steps = FLAGS_accum_steps;
  config.lr = FLAGS_lr;
  config.momentum = FLAGS_momentum;
  config.weight_decay = FLAGS_weight_decay;
  config.label_smoothing = FLAGS_label_smoothing;
  config.warmup_epochs = FLAGS_warmup_epochs;
  config.terminate_on_nan = FLAGS_terminate_on_nan;
}

void TakeFiles(TrainConfig& config) {
  config.checkpoint_dir = FLAGS_checkpoint_dir;
  config.checkpoint_every = FLAGS_checkpoint_every;
  config.resume = FLAGS_resume;
  config.evaluate = FLAGS_evaluate;
  config.dry_run = FLAGS_dry_run;
  config.print_freq = FLAGS_print_freq;
  config.json_file = FLAGS_json_file;
  config.tensorboard_dir = FLAGS_tensorboard_dir;
  config.trace_file = FLAGS_trace_file;
  config.trace_begin = FLAGS_trace_begin;
  config.trace_steps = FLAGS_trace_steps;
}

absl::StatusOr<TrainConfig> ConfigFromFlags() {
  TrainConfig config;
  TakeInput(config);
  TakeTraining(config);
  TakeFiles(config);
  LOCKSTEP_ASSIGN_OR_RETURN(config.amp, AmpFromFlag());
  LOCKSTEP_ASSIGN_OR_RETURN(config.schedule, ScheduleFromFlag());
  LOCKSTEP_ASSIGN_OR_RETURN(config.seed, SeedFromFlag());
  return config;
}

absl::StatusOr<c10::Device> ChooseDevice(const comm::RankEnvironment& environment) {
  if (FLAGS_gpu < 0) return RankDevices(environment)[0];
  const c10::DeviceIndex gpus = torch::cuda::device_count();
  if (FLAGS_gpu >= gpus) return FlagError("gpu", FLAGS_gpu, absl::StrCat("one of this machine's ", gpus));
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(FLAGS_gpu));
}

// As one of several ranks, which the environment or --rank and --world-size number.
absl::Status TrainAsRank(const TrainConfig& config, int rank, int world_size) {
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment,
                            comm::ReadRankEnvironment(comm::ProcessEnvironment, {rank, world_size}));
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, ChooseDevice(environment));
  comm::InitOptions options;
  options.backend = FLAGS_dist_backend;
  options.init_method = FLAGS_dist_url;
  options.rank = rank;
  options.world_size = world_size;
  options.timeout = absl::Seconds(FLAGS_dist_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group, comm::InitProcessGroup(options));
  return FinishRank(group.get(), Train(config, group.get(), environment.local_world_size, device));
}

// --world-size and --rank count nodes here, and --dist-url says where node 0 is.
absl::StatusOr<launch::SpawnOptions> SpawnOptionsFromFlags() {
  launch::SpawnOptions options;
  options.grace = absl::Minutes(1);          // for a checkpoint, when the training is told to stop
  options.failure_grace = absl::Seconds(2);  // ranks that have lost another cannot make one
  if (FLAGS_world_size > 1) {
    options.nnodes = FLAGS_world_size;
    options.node_rank = FLAGS_rank;
  }
  absl::string_view address = FLAGS_dist_url;
  if (!absl::ConsumePrefix(&address, "tcp://")) return options;
  const size_t colon = address.rfind(':');
  if (colon == address.npos || !absl::SimpleAtoi(address.substr(colon + 1), &options.master_port)) {
    return FlagError("dist-url", FLAGS_dist_url, "tcp://host:port");
  }
  options.master_addr = std::string(address.substr(0, colon));
  return options;
}

absl::Status TrainInProcesses(const TrainConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(const launch::SpawnOptions options, SpawnOptionsFromFlags());
  const c10::DeviceIndex gpus = torch::cuda::device_count();
  return launch::Spawn(
      gpus > 0 ? gpus : FLAGS_cpu_ranks, [&](int) { return TrainAsRank(config, -1, -1); }, options);
}

void WarnAboutFlags(const TrainConfig& config) {
  if (config.seed) {
    std::cerr << "warning: --seed makes cuDNN deterministic, which can slow training down considerably" << std::endl;
  }
  if (FLAGS_gpu >= 0) std::cerr << "warning: --gpu means one GPU, without data parallelism on it" << std::endl;
}

// -1 is for what is not given.
absl::Status CheckRankFlags() {
  if (FLAGS_world_size != -1) LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"world-size", FLAGS_world_size * 1.0, 1}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges(
      {{"cpu-ranks", FLAGS_cpu_ranks * 1.0, 1, 4096}, {"rank", FLAGS_rank * 1.0, -1}, {"gpu", FLAGS_gpu * 1.0, -1}}));
  return CheckSeconds("dist-timeout", FLAGS_dist_timeout);
}

// Whether this process is rank 0, or will start it. --rank numbers nodes where each node's process starts its ranks.
absl::StatusOr<bool> HasRankZero() {
  comm::ExplicitRank given;
  if (!FLAGS_multiprocessing_distributed) given = {FLAGS_rank, FLAGS_world_size};
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment,
                            comm::ReadRankEnvironment(comm::ProcessEnvironment, given));
  return environment.rank.value_or(FLAGS_multiprocessing_distributed ? FLAGS_rank : 0) <= 0;
}

absl::Status Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(const TrainConfig config, ConfigFromFlags());
  LOCKSTEP_RETURN_IF_ERROR(CheckConfig(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckRankFlags());
  LOCKSTEP_ASSIGN_OR_RETURN(const bool has_rank_zero, HasRankZero());
  if (has_rank_zero) LOCKSTEP_RETURN_IF_ERROR(CheckOutputs(config));
  if (FLAGS_multiprocessing_distributed) return TrainInProcesses(config);
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment,
                            comm::ReadRankEnvironment(comm::ProcessEnvironment, {FLAGS_rank, FLAGS_world_size}));
  if (FLAGS_world_size > 1 && !environment.rank) return FlagError("world-size", FLAGS_world_size, "--rank with it");
  if (environment.rank.value_or(0) == 0) WarnAboutFlags(config);
  if (environment.rank) return TrainAsRank(config, FLAGS_rank, FLAGS_world_size);
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, ChooseDevice(environment));
  return Train(config, /*group=*/nullptr, /*local_ranks=*/1, device);
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
  const std::vector<std::string> arguments = ParseCommandLine(argc, argv, examples::imagenet::Usage());
  absl::Status status;
  if (!arguments.empty() && !FLAGS_data.empty()) {
    status = absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", arguments[0], "\" beside --data"));
  } else if (!arguments.empty()) {
    FLAGS_data = arguments[0];
  }
  if (status.ok()) status = examples::imagenet::Run();
  if (status.ok()) return 0;
  std::cerr << "train: " << Printable(status.message()) << std::endl;
  launch::ReportError(status);
  if (examples::imagenet::IsResumable(status)) return examples::imagenet::kResumableExitCode;
  return FLAGS_multiprocessing_distributed ? launch::ExitCode(status) : 1;
}
