#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"

int main() {
  const auto group = lockstep::comm::InitProcessGroup({});
  using Sgd = lockstep::ddp::zero::ZeroRedundancyOptimizer<torch::optim::SGD>;
  torch::nn::Linear net(1, 1);
  return group.ok() && Sgd::Create(net->parameters(), torch::optim::SGDOptions(0.1), group->get()).ok() ? 0 : 1;
}
