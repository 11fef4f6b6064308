#include "lockstep/examples/imagenet/config.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/output_file.h"
#include "lockstep/base/status.h"
#include "lockstep/examples/imagenet/optimizers.h"
#include "lockstep/models/registry.h"

namespace lockstep::examples::imagenet {
namespace {

void AddInput(TrainConfig& config, FlagTable& flags) {
  flags.Group("Data");
  flags.Add("data", &config.data,
            "The folder of train/ and val/, each with one folder for each class. It may also be the only argument.");
  flags.Add("dummy", &config.dummy, "Images of noise instead of --data.");
  flags.Add("dummy-train-images", &config.dummy_train_images, "The number of noise images to train on in an epoch.",
            {1, 1e12});
  flags.Add("dummy-val-images", &config.dummy_val_images, "The number of noise images to validate on.", {1, 1e12});
  flags.Add("image-size", &config.image_size, "The height and width to which images are cropped.", {1, 65536});
  flags.Add("num-classes", &config.num_classes,
            "The number of classes of the network. 0: the number in train/, or 1000 for --dummy.", {0});
  flags.Add("workers", &config.workers, "Threads of a node that prepare images. Its ranks share them.", {1, 4096});
  flags.Add("max-skipped", &config.max_skipped,
            "The number of unreadable images that an epoch may leave out. They are named.", {0});
  flags.Add("scaled-decode", &config.scaled_decode,
            "Decode large JPEGs at 1/2, 1/4 or 1/8. This is faster, but the pixels differ from Python's.");
}

void AddNetwork(TrainConfig& config, FlagTable& flags) {
  flags.Group("Network");
  flags.Add("arch", &config.arch, "The network, by torchvision's name.");
  flags.Add("pretrained", &config.pretrained,
            "A .pt or .safetensors file with the initial parameters, such as torchvision's. If its number of classes "
            "differs, the last layer begins anew.");
  flags.Add("freeze-backbone", &config.freeze_backbone,
            "Train the last layer only. The other layers and their BatchNorm averages keep their values.");
  flags.Add("channels-last", &config.channels_last,
            "Keep images and weights in the memory format in which convolutions are fastest.");
  flags.Add("mkldnn", &config.mkldnn,
            "Keep activations in oneDNN's blocked layout (CPU, float32). This is faster for large images.");
  flags.AddChoice("amp", &config.amp, {"", "bf16", "fp16"},
                  "bf16 or fp16: compute in this type where that is safe. fp16 needs a GPU.");
  flags.Add("dropout", &config.dropout, "The probability with which a feature is zeroed before the last layer.");
  flags.Add("ema-decay", &config.ema_decay,
            "Validate an average of the weights that moves by 1 - this in each step. 0: validate the weights.");
}

void AddTraining(TrainConfig& config, FlagTable& flags) {
  flags.Group("Training");
  flags.Add("epochs", &config.epochs, "The number of passes over the training images.", {1});
  flags.Add("start-epoch", &config.start_epoch, "The first epoch. A resumed run continues at its own epoch.", {0});
  flags.Add(
      "batch-size", &config.batch_size,
      "Images in a batch of a node. Its ranks share them. With --virtual-ranks: in a batch of all nodes together.",
      {1});
  flags.Add("virtual-ranks", &config.virtual_ranks,
            "Train to the same bits on any number of ranks up to this number, which divides --batch-size. 0: off.",
            {0, 65536});
  flags.Add("accum-steps", &config.accum_steps, "Batches for each step of the optimizer.", {1});
  flags.AddChoice("optimizer", &config.optimizer, OptimizerNames(),
                  absl::StrCat(absl::StrJoin(OptimizerNames(), ", "), "."));
  flags.Add("lr", &config.lr, "The optimizer's learning rate.", {0});
  flags.Add("momentum", &config.momentum, "The momentum of sgd, lars and rmsprop.", {0});
  flags.Add("weight-decay", &config.weight_decay, "The optimizer's weight decay.", {0});
  flags.Add("label-smoothing", &config.label_smoothing,
            "The share of a target that is distributed evenly over all classes.");
  flags.AddChoice(
      "schedule", &config.schedule, {"step", "cosine", "linear", "polynomial", "warm_restarts", "one_cycle", "plateau"},
      "step: divide the learning rate by 10 every 30 epochs. cosine, linear: lower it to 0; polynomial: by the square "
      "of the share of epochs that is left. warm_restarts: a cosine that begins again every 30 epochs. one_cycle: "
      "raise "
      "it from --lr/25 to --lr and lower it to 0, with the momentum in reverse, in each step. plateau: divide it by 10 "
      "when top-1 accuracy has not risen for 10 epochs.");
  flags.Add("warmup-epochs", &config.warmup_epochs, "Epochs in which the learning rate rises to --lr.", {0});
  flags.Add("warmup-steps", &config.warmup_steps,
            "Steps of the optimizer in which the learning rate rises to --lr. The schedule then advances in each step, "
            "not in each epoch.",
            {0});
  flags.Add("seed", &config.seed,
            "Seed for the initial weights, the image order and augmentation. Empty: the weights differ each run.");
  flags.Add("terminate-on-nan", &config.terminate_on_nan,
            "End the run when a rank's loss is NaN or infinite. Otherwise it is reported once.");
}

void AddFiles(TrainConfig& config, FlagTable& flags) {
  flags.Group("Checkpoints");
  flags.Add("checkpoint-dir", &config.checkpoint_dir,
            "The folder of the run's checkpoints: one file for each saved step, and model_best.pt.");
  flags.Add("checkpoint-every", &config.checkpoint_every,
            "Also save every so many steps. 0: only at the end of each epoch.", {0});
  flags.Add("keep-last", &config.keep_last, "The number of newest checkpoints to keep. 0: all.", {0, 1e6});
  flags.Add("resume", &config.resume,
            "The checkpoint to continue from, also in mid-epoch. auto: the newest one in --checkpoint-dir, or a new "
            "run if there is none yet.");
  flags.Add("evaluate", &config.evaluate, "Validate, and do not train.");
  flags.Add("dry-run", &config.dry_run, "Check flags, paths, device, memory and the first batch, and write nothing.");

  flags.Group("Output");
  flags.Add("print-freq", &config.print_freq, "The number of batches for each line.", {1});
  flags.Add("json-file", &config.json_file, "A file for one JSON object a line.");
  flags.Add("tensorboard-dir", &config.tensorboard_dir, "A folder for an event file that TensorBoard reads.");
  flags.Add("trace-file", &config.trace_file, "A file for a Chrome trace of some of rank 0's steps.");
  flags.Add("trace-begin", &config.trace_begin, "The step after which the trace begins.", {1});
  flags.Add("trace-steps", &config.trace_steps, "The number of steps in the trace.", {1});
}

void AddRanks(TrainConfig& config, FlagTable& flags) {
  flags.Group("Ranks");
  flags.Add("elastic", &config.elastic,
            "Go on when ranks die without --virtual-ranks too. The result then depends on who died.");
  flags.Add("multiprocessing-distributed", &config.multiprocessing_distributed,
            "Start a rank for each GPU, or --cpu-ranks ranks without a GPU.");
  flags.Add("cpu-ranks", &config.cpu_ranks, "The number of ranks to start on a machine without GPUs.", {1, 4096});
  flags.Add("world-size", &config.world_size,
            "The number of ranks. With --multiprocessing-distributed: the number of nodes.", {});
  flags.Add("rank", &config.rank, "The number of this rank. With --multiprocessing-distributed: of this node.", {-1});
  flags.Add("dist-url", &config.dist_url, "Where ranks meet: env://, tcp://host:port or file:///path.");
  flags.Add("dist-backend", &config.dist_backend, "The ranks' backend: auto, shm, gloo, hierarchical or nccl.");
  flags.Add("dist-timeout", &config.dist_timeout, "Seconds that meeting, or one collective, may take.");
  flags.Add("gpu", &config.gpu, "The GPU to use. -1: the one of the local rank.", {-1});
}

absl::Status CheckWarmup(const TrainConfig& config) {
  if (config.warmup_steps == 0 && config.warmup_epochs == 0) return absl::OkStatus();
  if (config.warmup_steps > 0 && config.warmup_epochs > 0) {
    return absl::InvalidArgumentError("expected --warmup-epochs or --warmup-steps, not both");
  }
  if (config.schedule != "one_cycle" && config.schedule != "plateau") return absl::OkStatus();
  return FlagError("schedule", config.schedule, "a schedule that can follow --warmup-epochs or --warmup-steps");
}

absl::Status CheckNumbers(const TrainConfig& config) {
  if (!(config.ema_decay >= 0 && config.ema_decay < 1)) {
    return FlagError("ema-decay", config.ema_decay, "0 or more and less than 1");
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    return FlagError("dropout", config.dropout, "0 or more and less than 1");
  }
  if (!(config.label_smoothing >= 0 && config.label_smoothing <= 1)) {
    return FlagError("label-smoothing", config.label_smoothing, "a share from 0 to 1");
  }
  if (config.warmup_epochs > 0 && config.warmup_epochs >= config.epochs) {
    return FlagError("warmup-epochs", config.warmup_epochs, absl::StrCat("less than --epochs=", config.epochs));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckWarmup(config));
  if (config.virtual_ranks == 0 || config.batch_size % config.virtual_ranks == 0) return absl::OkStatus();
  return FlagError("batch-size", config.batch_size,
                   absl::StrCat("a multiple of --virtual-ranks=", config.virtual_ranks));
}

absl::Status CheckNetwork(const TrainConfig& config) {
  if (const std::vector<std::string> names = models::Names(); !absl::c_linear_search(names, config.arch)) {
    return FlagError("arch", config.arch, absl::StrCat("one of ", absl::StrJoin(names, ", ")));
  }
  if (config.mkldnn && config.channels_last) {
    return absl::InvalidArgumentError("expected --mkldnn or --channels-last, not both");
  }
  if (config.mkldnn && !config.amp.empty()) {
    return absl::InvalidArgumentError("--mkldnn computes in float32: expected no --amp");
  }
  if (!config.freeze_backbone || !config.pretrained.empty() || !config.resume.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--freeze-backbone: expected --pretrained or --resume, which give it a backbone");
}

absl::Status CheckData(const TrainConfig& config) {
  if (config.dummy) return absl::OkStatus();
  if (config.data.empty()) return absl::InvalidArgumentError("expected the folder of the images, or --dummy");
  for (const char* split : {"train", "val"}) {
    std::error_code error;
    if (!std::filesystem::is_directory(absl::StrCat(config.data, "/", split), error)) {
      return FlagError("data", config.data, absl::StrCat("a folder with ", split, "/"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFile(const char* flag, const std::string& path) {
  if (path.empty() || access(path.c_str(), R_OK) == 0) return absl::OkStatus();
  return FlagError(flag, path, "a file that can be read");
}

absl::Status CheckOutput(const char* flag, const std::string& path) {
  return path.empty() ? absl::OkStatus() : CheckOutputFile(absl::StrCat("--", flag, "=", path), path);
}

}  // namespace

FlagTable FlagsOf(TrainConfig& config) {
  FlagTable flags;
  AddInput(config, flags);
  AddNetwork(config, flags);
  AddTraining(config, flags);
  AddFiles(config, flags);
  AddRanks(config, flags);
  return flags;
}

absl::Status CheckConfig(const TrainConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumbers(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckNetwork(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckData(config));
  if (config.resume != "auto") LOCKSTEP_RETURN_IF_ERROR(CheckFile("resume", config.resume));
  LOCKSTEP_RETURN_IF_ERROR(CheckFile("pretrained", config.pretrained));
  // -1 means that the flag is not given.
  if (config.world_size != -1) LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"world-size", config.world_size * 1.0, 1}}));
  return CheckSeconds("dist-timeout", config.dist_timeout);
}

absl::Status CheckOutputs(const TrainConfig& config) {
  const std::string &checkpoints = config.checkpoint_dir, &events = config.tensorboard_dir;
  if (!config.evaluate) {
    LOCKSTEP_RETURN_IF_ERROR(CheckOutputFolder(absl::StrCat("--checkpoint-dir=", checkpoints), checkpoints));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckOutput("json-file", config.json_file));
  LOCKSTEP_RETURN_IF_ERROR(CheckOutput("trace-file", config.trace_file));
  if (events.empty()) return absl::OkStatus();
  return CheckOutputFolder(absl::StrCat("--tensorboard-dir=", events), events, /*or_missing=*/true);
}

}  // namespace lockstep::examples::imagenet
