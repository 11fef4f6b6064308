// What a run of the ImageNet trainer is asked to do: its flags, checked.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace lockstep::examples::imagenet {

// In which type autocast computes what gains by it.
enum class Amp { kNone, kBFloat16, kHalf };

// Of the learning rate, epoch by epoch.
enum class Schedule {
  kStep,   // a tenth of it after every 30 epochs
  kCosine  // down to 0 along half a cosine
};

struct TrainConfig {
  std::string data;    // the folder of train/ and val/, each with one folder a class
  bool dummy = false;  // images of noise instead
  int64_t dummy_train_images = 1281167;
  int64_t dummy_val_images = 50000;
  int64_t image_size = 224;    // height and width that the network gets
  int64_t num_classes = 0;     // 0: as many as train/ has, 1000 for --dummy
  int workers = 4;             // of a node: threads that make images
  int64_t max_skipped = 0;     // images an epoch may do without because they cannot be read
  bool scaled_decode = false;  // of JPEGs larger than needed, for other pixels than Python's

  std::string arch = "resnet18";
  std::string pretrained;  // a .pt file whose parameters to start from
  bool channels_last = false;
  bool mkldnn = false;  // activations in oneDNN's blocked layout
  Amp amp = Amp::kNone;
  double ema_decay = 0;  // of the average of weights that is evaluated beside them; 0: there is none

  int64_t epochs = 90;
  int64_t start_epoch = 0;
  int64_t batch_size = 256;  // of a node: its ranks share it
  int64_t accum_steps = 1;   // batches to a step of the optimizer
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double label_smoothing = 0;
  Schedule schedule = Schedule::kStep;
  int64_t warmup_epochs = 0;
  std::optional<int64_t> seed;
  bool terminate_on_nan = false;  // a loss that is not finite ends the run

  std::string checkpoint_dir = ".";  // gets checkpoint.pt and model_best.pt
  int64_t checkpoint_every = 0;      // steps; 0: only at the end of an epoch
  std::string resume;                // the checkpoint to go on from; "auto": checkpoint.pt if there is one
  bool evaluate = false;             // the validation images alone
  bool dry_run = false;              // everything up to the first batch, and nothing written

  int64_t print_freq = 10;  // batches
  std::string json_file;
  std::string tensorboard_dir;
  std::string trace_file;  // Chrome trace of rank 0's steps
  int64_t trace_begin = 5;
  int64_t trace_steps = 5;
};

// InvalidArgument, naming the flag, what was expected and what was found, where a value is out of its range, two do not
// go together, or a file or folder is not there.
absl::Status CheckConfig(const TrainConfig& config);

// Whether the files and folders that rank 0 writes can be written, found out by opening them; for where rank 0 runs.
// Leaves nothing behind. Errors name the flag, the path and what the system said.
absl::Status CheckOutputs(const TrainConfig& config);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_CONFIG_H_
