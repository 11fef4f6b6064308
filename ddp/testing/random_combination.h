// The random models, options and ways to train that //ddp:random_test and //ddp:virtual_ranks_random_test try.

#ifndef LOCKSTEP_DDP_TESTING_RANDOM_COMBINATION_H_
#define LOCKSTEP_DDP_TESTING_RANDOM_COMBINATION_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "lockstep/ddp/options.h"

namespace lockstep::ddp::testing {

// x -> tanh(W x + b), or for a branch x + tanh(W x + b).
struct LayerSpec {
  int in = 0, out = 0;
  int tied_to = -1;  // the layer whose weight this one shares, under a second name
  int times = 1;     // in a row
  bool frozen_weight = false, frozen_bias = false;
  bool branch = false;  // may be left out
};

enum class BranchUse { kAlways, kSomeNever, kByChance };

// On how many ranks the virtual ranks run, and over which backend: "threads" or "shm".
struct VirtualRun {
  int ranks = 1;
  std::string backend = "threads";
};

struct Combination {
  static constexpr int kInputs = 5;  // of the first layer

  int seed = 0;
  int ranks = 1;
  std::vector<LayerSpec> layers;
  bool buffer = false;
  BranchUse branches = BranchUse::kAlways;
  Options options;
  bool hook = false;
  bool set_to_none = true;
  bool keep_old_gradients = false;
  int steps = 5;
  int unsynced = 0;    // backward passes under NoSync before each averaged one
  int averaged = 1;    // averaged backward passes a step
  bool twice = false;  // each loss goes backward two times
  bool join = false, divide_by_initial_world_size = true;
  std::vector<int> steps_of_rank;
  double momentum = 0, weight_decay = 0;

  // Only with virtual ranks.
  c10::ScalarType dtype = c10::ScalarType::Double;
  bool norm = false;   // BatchNorm after the first layer
  double dropout = 0;  // after the first layer
  int steps_between_zero_grad = 1;
  std::vector<VirtualRun> runs;
};

// Equal seeds give equal combinations on every platform. Every combination is exact: training on the ranks differs from
// training in one process only by rounding.
Combination RandomCombination(int seed);

// RandomCombination() for training with virtual ranks: `ranks` of them. The runs have the bits of one process that adds
// in the order of comm::SumTree, or with mixed_precision of each other.
Combination RandomVirtualCombination(int seed);

// The first of the seeds to try: LOCKSTEP_RANDOM_FIRST of the environment, or 0.
int FirstSeed();

// The command that runs the combination again, and what it consists of.
std::string Describe(const Combination& combination);

// Mixes numbers into one that looks random.
uint64_t Mix(std::initializer_list<int64_t> parts);

}  // namespace lockstep::ddp::testing

#endif  // LOCKSTEP_DDP_TESTING_RANDOM_COMBINATION_H_
