// Trains the Fashion-MNIST model in one process or as one of several ranks.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_TRAINER_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_TRAINER_H_

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/examples/fashion_mnist/comparison/config.h"

namespace lockstep::examples {

// Runs one rank. `group` is null for a run in one process, without DDP: with dp::DataParallel if `config` says so.
// Rank 0 reports.
absl::Status Train(const TrainConfig& config, comm::ProcessGroup* group);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_TRAINER_H_
