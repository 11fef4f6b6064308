// Trains the Fashion-MNIST model, alone or as one of several ranks. To read the example, start with this file and
// trainer.cc.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// Training hyperparameters, except for the amount of data.
struct Recipe {
  double lr;        // the maximum, if there is a schedule
  double momentum;  // of SGD
  bool schedule;    // of the learning rate: see SetLearningRate
  bool shuffle;
  bool normalize;  // images to zero mean and unit variance, with the statistics of the training images' pixels
};
// Lockstep's recipe, and that of PyTorch's tutorial on DataParallel, which learns slowly.
inline constexpr Recipe kTuned = {0.15, 0.9, true, true, true};
inline constexpr Recipe kTutorial = {2e-3, 0, false, false, false};

// Whether to resume from the checkpoint. kAuto: if it exists.
enum class Resume { kNo, kYes, kAuto };

struct TrainConfig {
  int64_t epochs = 5;
  int64_t batch_size = 1024;  // over all ranks and devices
  Recipe recipe = kTuned;
  // Whether one process computes on several devices with dp::DataParallel: on all visible GPUs or, without a GPU,
  // `cpu_slots` times on the CPU.
  bool data_parallel = false;
  int cpu_slots = 2;
  int64_t seed = 0;  // seed for the initial parameters and the order of samples
  std::string data_dir;
  std::string checkpoint_dir;    // empty: no checkpoints
  int64_t checkpoint_every = 0;  // steps; 0: only at the end of each epoch
  Resume resume = Resume::kNo;
  bool terminate_on_nan = false;  // whether a loss that is not finite ends the run
  std::string pretrained;         // initial state dict; empty: random parameters
  std::string metrics_file;       // empty: none
  bool dry_run = false;           // runs up to the first backward pass and writes nothing
};

// Runs one rank. `group` is null for a run in one process, without DDP. Rank 0 reports and saves.
absl::Status Train(const TrainConfig& config, comm::ProcessGroup* group);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_
