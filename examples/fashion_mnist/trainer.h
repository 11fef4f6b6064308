// Trains the Fashion-MNIST model, alone or as one of several ranks. This file and trainer.cc are the part to read.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// How the model is trained, apart from on how much.
struct Recipe {
  double lr;        // the highest, if there is a schedule
  double momentum;  // of SGD
  bool schedule;    // of the learning rate: see SetLearningRate
  bool shuffle;
  bool normalize;  // images to zero mean and unit variance, by the training images' pixels
};
// Ours, and that of PyTorch's tutorial on DataParallel, which learns slowly.
inline constexpr Recipe kTuned = {0.15, 0.9, true, true, true};
inline constexpr Recipe kTutorial = {2e-3, 0, false, false, false};

// Whether to go on from the checkpoint. kAuto: if there is one.
enum class Resume { kNo, kYes, kAuto };

struct TrainConfig {
  int64_t epochs = 5;
  int64_t batch_size = 1024;  // over all ranks and devices
  Recipe recipe = kTuned;
  // Whether one process computes on several devices, by dp::DataParallel: on all GPUs that are visible, and without any
  // on so many slots of the CPU.
  bool data_parallel = false;
  int cpu_slots = 2;
  int64_t seed = 0;  // of the initial parameters and of the order of samples
  std::string data_dir;
  std::string checkpoint_dir;    // empty: no checkpoints
  int64_t checkpoint_every = 0;  // steps; 0: only at the end of each epoch
  Resume resume = Resume::kNo;
  bool terminate_on_nan = false;  // a loss that is not finite ends the run
  std::string pretrained;         // a state dict to start from; empty: random parameters
  std::string metrics_file;       // empty: none
  bool dry_run = false;           // everything up to the first backward pass, and nothing written
};

// One rank's whole run. `group` is null for a run in one process, without DDP. Rank 0 reports and saves.
absl::Status Train(const TrainConfig& config, comm::ProcessGroup* group);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_
