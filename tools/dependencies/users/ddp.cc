#include <torch/nn/modules/linear.h>

#include "lockstep/ddp/distributed_data_parallel.h"

int main() {
  const auto group = lockstep::comm::InitProcessGroup({});
  return group.ok() && lockstep::ddp::Wrap(torch::nn::Linear(1, 1), group->get()).ok() ? 0 : 1;
}
