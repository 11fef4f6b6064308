// The optimizers that --optimizer names.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_OPTIMIZERS_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_OPTIMIZERS_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::examples::imagenet {

// Flags of all optimizers.
struct OptimizerFlags {
  double lr, momentum, weight_decay;
};

// Sorted.
std::vector<std::string> OptimizerNames();

// Returns an optimizer with one of these names. An optimizer without momentum ignores it. Its other options have Python's
// defaults. Throws c10::Error if a flag is out of range.
std::unique_ptr<optim::Optimizer> MakeOptimizer(const std::string& name, const OptimizerFlags& flags,
                                                std::vector<at::Tensor> parameters);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_OPTIMIZERS_H_
