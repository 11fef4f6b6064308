#include "lockstep/examples/imagenet/config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/examples/program/flag_error.h"
#include "lockstep/examples/program/output_file.h"
#include "lockstep/models/registry.h"

namespace lockstep::examples::imagenet {
namespace {

absl::Status CheckNumbers(const TrainConfig& config) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  return CheckRanges({
      {"dummy-train-images", number(config.dummy_train_images), 1, 1e12},
      {"dummy-val-images", number(config.dummy_val_images), 1, 1e12},
      {"image-size", number(config.image_size), 1, 65536},
      {"num-classes", number(config.num_classes), 0},
      {"workers", number(config.workers), 1, 4096},
      {"max-skipped", number(config.max_skipped), 0},
      {"epochs", number(config.epochs), 1},
      {"start-epoch", number(config.start_epoch), 0},
      {"batch-size", number(config.batch_size), 1},
      {"accum-steps", number(config.accum_steps), 1},
      {"lr", config.lr, 0},
      {"momentum", config.momentum, 0},
      {"weight-decay", config.weight_decay, 0},
      {"warmup-epochs", number(config.warmup_epochs), 0},
      {"checkpoint-every", number(config.checkpoint_every), 0},
      {"print-freq", number(config.print_freq), 1},
      {"trace-begin", number(config.trace_begin), 1},
      {"trace-steps", number(config.trace_steps), 1},
  });
}

absl::Status CheckShares(const TrainConfig& config) {
  if (!(config.ema_decay >= 0 && config.ema_decay < 1)) {
    return FlagError("ema-decay", config.ema_decay, "0 or more and less than 1");
  }
  if (!(config.label_smoothing >= 0 && config.label_smoothing <= 1)) {
    return FlagError("label-smoothing", config.label_smoothing, "a share from 0 to 1");
  }
  if (config.warmup_epochs > 0 && config.warmup_epochs >= config.epochs) {
    return FlagError("warmup-epochs", config.warmup_epochs, absl::StrCat("less than --epochs=", config.epochs));
  }
  return absl::OkStatus();
}

absl::Status CheckArch(const std::string& arch) {
  const std::vector<std::string> names = models::Names();
  if (std::find(names.begin(), names.end(), arch) != names.end()) return absl::OkStatus();
  return FlagError("arch", arch, absl::StrCat("one of ", absl::StrJoin(names, ", ")));
}

absl::Status CheckLayout(const TrainConfig& config) {
  if (!config.mkldnn) return absl::OkStatus();
  if (config.channels_last) return absl::InvalidArgumentError("expected --mkldnn or --channels-last, not both");
  if (config.amp != Amp::kNone) return absl::InvalidArgumentError("--mkldnn computes in float32: expected no --amp");
  return absl::OkStatus();
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::Status CheckFile(const char* flag, const std::string& path) {
  if (path.empty() || access(path.c_str(), R_OK) == 0) return absl::OkStatus();
  return FlagError(flag, path, "a file that can be read");
}

absl::Status CheckData(const TrainConfig& config) {
  if (config.dummy) return absl::OkStatus();
  if (config.data.empty()) return absl::InvalidArgumentError("expected the folder of the images, or --dummy");
  for (const char* split : {"train", "val"}) {
    if (!IsDirectory(absl::StrCat(config.data, "/", split))) {
      return FlagError("data", config.data, absl::StrCat("a folder with ", split, "/"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPaths(const TrainConfig& config) {
  if (config.resume != "auto") LOCKSTEP_RETURN_IF_ERROR(CheckFile("resume", config.resume));
  LOCKSTEP_RETURN_IF_ERROR(CheckFile("pretrained", config.pretrained));
  return absl::OkStatus();
}

std::string Given(const char* flag, const std::string& value) { return absl::StrCat("--", flag, "=", value); }

absl::Status CheckOutputFile(const char* flag, const std::string& path) {
  return path.empty() ? absl::OkStatus() : examples::CheckOutputFile(Given(flag, path), path);
}

}  // namespace

absl::Status CheckConfig(const TrainConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumbers(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckShares(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckArch(config.arch));
  LOCKSTEP_RETURN_IF_ERROR(CheckLayout(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckData(config));
  return CheckPaths(config);
}

absl::Status CheckOutputs(const TrainConfig& config) {
  if (!config.evaluate) {
    LOCKSTEP_RETURN_IF_ERROR(CheckOutputFolder(Given("checkpoint-dir", config.checkpoint_dir), config.checkpoint_dir));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckOutputFile("json-file", config.json_file));
  LOCKSTEP_RETURN_IF_ERROR(CheckOutputFile("trace-file", config.trace_file));
  if (config.tensorboard_dir.empty()) return absl::OkStatus();
  return CheckOutputFolder(Given("tensorboard-dir", config.tensorboard_dir), config.tensorboard_dir,
                           /*or_missing=*/true);
}

}  // namespace lockstep::examples::imagenet
