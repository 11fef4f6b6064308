#include <torch/nn/modules/linear.h>

#include "lockstep/dp/data_parallel.h"

int main() {
  lockstep::dp::Options options;
  options.device_ids = {-1, -1};
  auto model = lockstep::dp::Wrap(torch::nn::Linear(1, 1), options);
  return model.ok() && model->forward(at::ones({2, 1})).defined() ? 0 : 1;
}
