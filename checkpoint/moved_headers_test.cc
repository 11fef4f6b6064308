// Headers that have moved are still found at their old places, and their targets too.

#include <ATen/ops/ones.h>
#include <torch/optim/sgd.h>

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/checkpoint/lr_scheduler.h"
#include "lockstep/checkpoint/optimizer.h"
#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::checkpoint {
namespace {

TEST(MovedHeaders, AreFoundAtTheirOldPlaces) {
  torch::optim::SGD sgd(std::vector<at::Tensor>{at::ones({2})}, 0.1);
  EXPECT_EQ(OptimizerStateDict(sgd).status(), absl::OkStatus());
  EXPECT_EQ(LRScheduler::Create(&sgd, StepLR{30}).status(), absl::OkStatus());
  EXPECT_EQ(LoadSafetensors(testing::TempDir() + "/none.safetensors").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::checkpoint
