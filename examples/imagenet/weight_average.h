// An exponential moving average of a network's weights.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_WEIGHT_AVERAGE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_WEIGHT_AVERAGE_H_

#include <torch/nn/module.h>

namespace lockstep::examples::imagenet {

// Sets average = decay * average + (1 - decay) * now, for every parameter and floating-point buffer. Other buffers are
// copied. `average` and `now` must be modules of the same kind. If the ranks' weights are equal, so are their averages.
void UpdateAverage(torch::nn::Module& average, const torch::nn::Module& now, double decay);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_WEIGHT_AVERAGE_H_
