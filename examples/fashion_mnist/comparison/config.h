// The flags of the comparison program.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_CONFIG_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/examples/program/flag_table.h"

namespace lockstep::examples {

// How a model is trained on several devices.
enum class Parallel { kCompare, kNone, kDp, kDdp };

enum class RecipeName { kDefault, kTuned, kTutorial };

// Training hyperparameters, except for the amount of data.
struct Recipe {
  double lr;        // the maximum, if there is a schedule
  double momentum;  // of SGD
  bool schedule;    // of the learning rate: see net.h
  bool shuffle;
  bool normalize;  // images to zero mean and unit variance: see net.h
};

// Each value is a flag, which FlagsOf() describes.
struct TrainConfig {
  Parallel parallel = Parallel::kCompare;
  int32_t nproc_per_node = 2;
  int32_t cpu_slots = 2;
  bool dry_run = false;

  RecipeName recipe = RecipeName::kDefault;
  int64_t epochs = 5;
  int64_t batch_size = 1024;
  double lr = 0;
  double momentum = -1;
  int64_t seed = 0;
  std::string pretrained;
  bool terminate_on_nan = false;

  std::string data_dir = data::FashionMnist::kDebianDirectory;
  std::string metrics_file;

  std::string backend = "auto";
  std::string init_method = "env://";
  double timeout = 300;  // seconds
};

// `config` is borrowed.
FlagTable FlagsOf(TrainConfig& config);

// Checks what one row of the table cannot. InvalidArgument, naming the flag: two flags contradict each other, or a time
// is not positive.
absl::Status CheckConfig(const TrainConfig& config);

// The recipe that the flags choose.
Recipe RecipeOf(const TrainConfig& config);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_COMPARISON_CONFIG_H_
