// Trains the Fashion-MNIST model, alone or as one of several ranks. This file and trainer.cc are the part to read.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

struct TrainConfig {
  int64_t epochs = 5;
  int64_t batch_size = 1024;  // over all ranks
  double lr = 0.15;           // the highest; see SetLearningRate
  double momentum = 0.9;
  int64_t seed = 0;  // of the initial parameters and of the order of samples
  std::string data_dir;
  std::string checkpoint_dir;    // empty: no checkpoints
  int64_t checkpoint_every = 0;  // steps; 0: only at the end of each epoch
  bool resume = false;
  std::string pretrained;    // a state dict to start from; empty: random parameters
  std::string metrics_file;  // empty: none
  bool dry_run = false;      // everything up to the first backward pass, and nothing written
};

// One rank's whole run. `group` is null for a run in one process, without DDP. Rank 0 reports and saves.
absl::Status Train(const TrainConfig& config, comm::ProcessGroup* group);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_TRAINER_H_
