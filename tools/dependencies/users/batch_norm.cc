#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/sync_batch_norm/convert_sync_batch_norm.h"

int main() {
  const auto group = lockstep::comm::InitProcessGroup({});
  torch::nn::Sequential net(torch::nn::BatchNorm1d(1));
  return group.ok() && lockstep::ddp::ConvertSyncBatchNorm(*net, group->get()).ok() ? 0 : 1;
}
