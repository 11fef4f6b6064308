#include "lockstep/examples/imagenet/weight_average.h"

#include <torch/nn/modules/batchnorm.h>

#include "gtest/gtest.h"

namespace lockstep::examples::imagenet {
namespace {

TEST(WeightAverage, ParametersAndStatisticsMoveByOneMinusDecayAndCountersAreTaken) {
  torch::nn::BatchNorm2d now(2), average(2);
  {
    const at::NoGradGuard no_grad;
    now->weight.fill_(3);
    now->running_mean.fill_(4);
    now->num_batches_tracked.fill_(7);
  }
  UpdateAverage(*average, *now, 0.75);
  EXPECT_EQ(average->weight[0].item<float>(), 1.5);
  EXPECT_EQ(average->running_mean[1].item<float>(), 1);
  EXPECT_EQ(average->num_batches_tracked.item<int64_t>(), 7);
  EXPECT_EQ(now->weight[0].item<float>(), 3);
}

}  // namespace
}  // namespace lockstep::examples::imagenet
