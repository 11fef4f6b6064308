// The ImageNet trainer's flags as a struct, and checks of their values.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace lockstep::examples::imagenet {

// The dtype that autocast uses.
enum class Amp { kNone, kBFloat16, kHalf };

// The learning-rate schedule.
enum class Schedule {
  kStep,   // divided by 10 after every 30 epochs
  kCosine  // down to 0 along half a cosine
};

struct TrainConfig {
  std::string data;    // folder of train/ and val/, each with one folder for each class
  bool dummy = false;  // uses images of noise instead
  int64_t dummy_train_images = 1281167;
  int64_t dummy_val_images = 50000;
  int64_t image_size = 224;    // height and width of the network's input
  int64_t num_classes = 0;     // 0: the number of classes in train/, or 1000 for --dummy
  int workers = 4;             // threads on this node that prepare images
  int64_t max_skipped = 0;     // number of images in an epoch that may be unreadable
  bool scaled_decode = false;  // decodes large JPEGs at a lower resolution; pixels then differ from Python's

  std::string arch = "resnet18";
  std::string pretrained;  // .pt file with initial parameters
  bool channels_last = false;
  bool mkldnn = false;  // activations in oneDNN's blocked layout
  Amp amp = Amp::kNone;
  double ema_decay = 0;  // of the average of weights, which is evaluated too; 0: no average

  int64_t epochs = 90;
  int64_t start_epoch = 0;
  int64_t batch_size = 256;  // of a node, divided among its ranks
  int64_t accum_steps = 1;   // batches for each step of the optimizer
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double label_smoothing = 0;
  Schedule schedule = Schedule::kStep;
  int64_t warmup_epochs = 0;
  std::optional<int64_t> seed;
  bool terminate_on_nan = false;  // whether a loss that is not finite ends the run

  std::string checkpoint_dir = ".";  // folder for checkpoint.pt and model_best.pt
  int64_t checkpoint_every = 0;      // steps; 0: only at the end of an epoch
  std::string resume;                // checkpoint to resume from; "auto": checkpoint.pt if it exists
  bool evaluate = false;             // only evaluates the validation images
  bool dry_run = false;              // runs up to the first batch and writes nothing

  int64_t print_freq = 10;  // batches
  std::string json_file;
  std::string tensorboard_dir;
  std::string trace_file;  // Chrome trace of rank 0's steps
  int64_t trace_begin = 5;
  int64_t trace_steps = 5;
};

// InvalidArgument, naming the flag, the expected and the found value: a value is out of range, two flags contradict
// each other, or a file or folder does not exist.
absl::Status CheckConfig(const TrainConfig& config);

// Checks whether the files and folders that rank 0 writes can be opened for writing. Call it on rank 0's host. Leaves
// nothing behind. Errors name the flag, the path and the system's error.
absl::Status CheckOutputs(const TrainConfig& config);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_
