#include "lockstep/examples/imagenet/weight_average.h"

#include <ATen/core/grad_mode.h>

#include <vector>

namespace lockstep::examples::imagenet {
namespace {

void Update(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& now, double decay) {
  for (size_t i = 0; i < averages.size(); ++i) {
    if (averages[i].is_floating_point()) {
      averages[i].lerp_(now[i], 1 - decay);
    } else {
      averages[i].copy_(now[i]);
    }
  }
}

}  // namespace

void UpdateAverage(torch::nn::Module& average, const torch::nn::Module& now, double decay) {
  const at::NoGradGuard no_grad;
  Update(average.parameters(), now.parameters(), decay);
  Update(average.buffers(), now.buffers(), decay);
}

}  // namespace lockstep::examples::imagenet
