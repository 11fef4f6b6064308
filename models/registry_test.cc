#include "lockstep/models/registry.h"

#include <c10/util/Exception.h>
#include <torch/torch.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::models {
namespace {

using ::testing::ElementsAre;

TEST(Registry, ListsTheNamesOfTorchvision) {
  EXPECT_THAT(Names(), ElementsAre("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
                                   "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"));
}

TEST(Registry, MakesTheNetworkOfThatName) {
  torch::manual_seed(5);
  ResNet expected = ResNet18(10);
  torch::manual_seed(5);
  absl::StatusOr<ImageClassifier> net = Make("resnet18", 10);
  ASSERT_TRUE(net.ok()) << net.status();
  EXPECT_EQ((*net)->named_parameters().keys(), expected->named_parameters().keys());
  EXPECT_EQ((*net)->named_buffers().keys(), expected->named_buffers().keys());
  const at::Tensor images = torch::rand({2, 3, 32, 32});
  EXPECT_TRUE(torch::equal((*net)(images), expected(images)));
}

TEST(Registry, TakesNormalisationLayersFromTheFactory) {
  const auto group_norm = [](int64_t channels) {
    return torch::nn::AnyModule(torch::nn::GroupNorm(torch::nn::GroupNormOptions(8, channels)));
  };
  absl::StatusOr<ImageClassifier> net = Make("resnet18", 10, group_norm);
  ASSERT_TRUE(net.ok()) << net.status();
  EXPECT_TRUE((*net)->buffers().empty());
}

TEST(Registry, SaysWhichNamesThereAre) {
  EXPECT_EQ(Make("resnet19").status(),
            absl::InvalidArgumentError(
                "models: expected one of resnet18, resnet34, resnet50, resnet101, resnet152, resnext50_32x4d, "
                "resnext101_32x8d, resnext101_64x4d, wide_resnet50_2, wide_resnet101_2, found \"resnet19\""));
}

TEST(Registry, RefusesToMakeWhatCannotBeMade) {
  EXPECT_EQ(Make("resnet50", 0).status(),
            absl::InvalidArgumentError("models: resnet50: expected at least 1 class, found 0"));
  const auto broken = [](int64_t channels) -> torch::nn::AnyModule { C10_THROW_ERROR(ValueError, "no such layer"); };
  EXPECT_EQ(Make("resnet18", 10, broken).status(), absl::InvalidArgumentError("models: resnet18: no such layer"));
}

}  // namespace
}  // namespace lockstep::models
