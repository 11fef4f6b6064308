#include "lockstep/models/image_classifier.h"

#include <torch/torch.h>

#include <memory>

#include "gtest/gtest.h"
#include "lockstep/models/resnet.h"

namespace lockstep::models {
namespace {

// A network whose own parameter, buffer and training flag matter to its forward.
struct ScaledImpl : torch::nn::Cloneable<ScaledImpl> {
  ScaledImpl() { reset(); }
  void reset() override {
    linear = register_module("linear", torch::nn::Linear(2, 3));
    scale = register_parameter("scale", torch::full({1}, 2.0));
    offset = register_buffer("offset", torch::ones({3}));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = linear(x) * scale;
    return is_training() ? y : y + offset;
  }
  torch::nn::Linear linear{nullptr};
  at::Tensor scale, offset;
};
TORCH_MODULE(Scaled);

TEST(ImageClassifier, HasTheNamesAndTensorsOfItsNetwork) {
  Scaled scaled;
  ImageClassifier net{torch::nn::AnyModule(scaled)};
  const auto parameters = net->named_parameters();
  EXPECT_EQ(parameters.keys(), scaled->named_parameters().keys());
  EXPECT_EQ(net->named_buffers().keys(), scaled->named_buffers().keys());
  for (const auto& parameter : scaled->named_parameters()) {
    EXPECT_TRUE(parameters[parameter.key()].is_same(parameter.value())) << parameter.key();
  }
}

TEST(ImageClassifier, ForwardsAndTrainsLikeItsNetwork) {
  Scaled scaled;
  ImageClassifier net{torch::nn::AnyModule(scaled)};
  const at::Tensor x = torch::rand({4, 2}), y = net(x);
  EXPECT_TRUE(torch::equal(y, scaled->linear(x) * 2));
  net->eval();
  EXPECT_TRUE(torch::equal(net(x), y + 1));
  EXPECT_FALSE(scaled->linear->is_training());
  net->to(at::kDouble);
  EXPECT_EQ(net(x.to(at::kDouble)).scalar_type(), at::kDouble);
}

TEST(ImageClassifier, CloneIsEqualAndApart) {
  ImageClassifier net{torch::nn::AnyModule(Scaled())};
  net->eval();
  ImageClassifier copy(std::dynamic_pointer_cast<ImageClassifierImpl>(net->clone()));
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::rand({4, 2}), before = net(x);
  EXPECT_TRUE(torch::equal(copy(x), before));
  for (at::Tensor& parameter : copy->parameters()) parameter.zero_();
  EXPECT_TRUE(torch::equal(net(x), before));
  EXPECT_TRUE(torch::equal(copy(x), torch::ones({4, 3})));
}

TEST(ImageClassifier, GivesItsNetworkByType) {
  const ImageClassifier net{torch::nn::AnyModule(ResNet18(10))};
  EXPECT_EQ(net->network().get<ResNet>()->parameters().size(), net->parameters().size());
}

}  // namespace
}  // namespace lockstep::models
