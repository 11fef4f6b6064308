#include "lockstep/ddp/sync_batch_norm/norm_factory.h"

#include <torch/nn/modules/batchnorm.h>

namespace lockstep::ddp {

NormFactory BatchNorm2dFactory() {
  return [](int64_t channels) { return torch::nn::AnyModule(torch::nn::BatchNorm2d(channels)); };
}

}  // namespace lockstep::ddp
