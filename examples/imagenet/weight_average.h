// An exponential moving average of a network's weights.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_WEIGHT_AVERAGE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_WEIGHT_AVERAGE_H_

#include <torch/nn/module.h>

namespace lockstep::examples::imagenet {

// average = decay * average + (1 - decay) * now, of every parameter and floating-point buffer; other buffers are taken
// as they are. `average` and `now` are one kind of module. Where ranks' weights are equal, so are their averages.
void UpdateAverage(torch::nn::Module& average, const torch::nn::Module& now, double decay);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_WEIGHT_AVERAGE_H_
