#include <torch/nn/modules/linear.h>

#include "lockstep/dp/data_parallel.h"

int main() {
  auto model = lockstep::dp::Wrap(torch::nn::Linear(1, 1), {/*device_ids=*/{-1, -1}});
  return model.ok() && model->forward(at::ones({2, 1})).defined() ? 0 : 1;
}
