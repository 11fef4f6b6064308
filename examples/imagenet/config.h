// The ImageNet trainer's flags.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "lockstep/examples/program/flag_table.h"

namespace lockstep::examples::imagenet {

// Each value is a flag, which FlagsOf() describes.
struct TrainConfig {
  std::string data;
  bool dummy = false;
  int64_t dummy_train_images = 1281167;
  int64_t dummy_val_images = 50000;
  int64_t image_size = 224;
  int64_t num_classes = 0;
  int32_t workers = 4;
  int64_t max_skipped = 0;
  bool scaled_decode = false;

  std::string arch = "resnet18";
  std::string pretrained;
  bool freeze_backbone = false;
  bool channels_last = false;
  bool mkldnn = false;
  std::string amp;
  double ema_decay = 0;
  double dropout = 0;

  int64_t epochs = 90;
  int64_t start_epoch = 0;
  int64_t batch_size = 256;
  int32_t virtual_ranks = 0;
  int64_t accum_steps = 1;
  std::string optimizer = "sgd";
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double label_smoothing = 0;
  std::string schedule = "step";
  int64_t warmup_epochs = 0;
  int64_t warmup_steps = 0;
  std::optional<int64_t> seed;
  bool terminate_on_nan = false;

  std::string checkpoint_dir = ".";
  int64_t checkpoint_every = 0;
  int64_t keep_last = 3;
  std::string resume;
  bool evaluate = false;
  bool dry_run = false;

  int64_t print_freq = 10;
  std::string json_file;
  std::string tensorboard_dir;
  std::string trace_file;
  int64_t trace_begin = 5;
  int64_t trace_steps = 5;

  // How the program becomes one of several ranks.
  bool elastic = false;
  bool multiprocessing_distributed = false;
  int32_t cpu_ranks = 2;
  int32_t world_size = -1;
  int32_t rank = -1;
  std::string dist_url = "env://";
  std::string dist_backend = "auto";
  double dist_timeout = 1800;  // seconds
  int32_t gpu = -1;
};

// Returns the names, meanings, groups and ranges of all flags. `config` is borrowed.
FlagTable FlagsOf(TrainConfig& config);

// InvalidArgument, naming the flag, the expected and the found value: a value is out of range, two flags contradict
// each other, or a file or folder does not exist.
absl::Status CheckConfig(const TrainConfig& config);

// Checks whether the files and folders that rank 0 writes can be opened for writing. Call it on rank 0's host. It
// leaves no file behind. Errors name the flag, the path and the system's error.
absl::Status CheckOutputs(const TrainConfig& config);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_
