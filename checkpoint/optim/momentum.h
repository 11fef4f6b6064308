// Finds the momentum of an optimizer's group, which OneCycleLR and CyclicLR change.

#ifndef LOCKSTEP_CHECKPOINT_OPTIM_MOMENTUM_H_
#define LOCKSTEP_CHECKPOINT_OPTIM_MOMENTUM_H_

#include <torch/optim/optimizer.h>

namespace lockstep::checkpoint::optim {

struct Momentum {
  double* value = nullptr;  // nullptr if the optimizer has none
  bool is_beta1 = false;
};

// Returns the option momentum, or the first of betas, of LibTorch's optimizers and of those in optim/. `options` is
// borrowed.
Momentum FindMomentum(torch::optim::OptimizerOptions& options);

}  // namespace lockstep::checkpoint::optim

#endif  // LOCKSTEP_CHECKPOINT_OPTIM_MOMENTUM_H_
