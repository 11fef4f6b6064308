#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_WAYS_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_WAYS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/examples/fashion_mnist/comparison/config.h"

namespace lockstep::examples {

// One way to train.
struct Way {
  std::string name;
  int processes;
  TrainConfig config;
  std::function<absl::Status(const TrainConfig&)> train;  // runs in each process
};

// Trains in each way, one after the other and in new processes, so that no way benefits from another, and prints a
// table. All processes must reach this call in the same way (launch/spawn.h).
absl::Status Compare(const std::vector<Way>& ways);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_WAYS_H_
