#include "lockstep/models/channels_last.h"

#include <torch/torch.h>

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/models/resnet.h"

namespace lockstep::models {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

// Normalises, and notes whether what the convolution before it gave is in channels-last format and no other.
struct ProbeImpl : torch::nn::Module {
  ProbeImpl(int64_t channels, int* others) : norm(register_module("norm", torch::nn::BatchNorm2d(channels))) {
    this->others = others;
  }
  at::Tensor forward(const at::Tensor& x) {
    if (!x.is_contiguous(kChannelsLast) || x.is_contiguous()) ++*others;
    return norm(x);
  }
  torch::nn::BatchNorm2d norm;
  int* others;
};
TORCH_MODULE(Probe);

TEST(ToChannelsLast, ConvertsWhatHasFourDimensionsInPlace) {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::Flatten(), torch::nn::Linear(5, 6));
  net->register_buffer("image", torch::rand({1, 2, 3, 4}));
  const at::Tensor weight = net->parameters()[0], before = weight.detach().clone();
  weight.mutable_grad() = torch::rand_like(before);
  ToChannelsLast(*net);
  for (const at::Tensor& tensor : {weight, weight.grad(), net->buffers()[0]}) {
    EXPECT_TRUE(tensor.is_contiguous(kChannelsLast));
    EXPECT_FALSE(tensor.is_contiguous());
  }
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_TRUE(torch::equal(weight, before));
  EXPECT_TRUE(weight.is_same(net->parameters()[0]));
  for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(net->parameters()[i].is_contiguous()) << i;
}

TEST(ToChannelsLast, ResNetStaysInItFromTheFirstConvolutionOnAndComputesTheSame) {
  for (const auto& make : {ResNet18, ResNeXt50_32x4d}) {
    int others = 0;
    ResNet net = make(10, [&](int64_t channels) { return torch::nn::AnyModule(Probe(channels, &others)); });
    net->eval();
    const torch::NoGradGuard no_grad;
    const at::Tensor images = torch::randn({2, 3, 64, 64}), expected = net(images);
    EXPECT_GT(std::exchange(others, 0), 0);
    ToChannelsLast(*net);
    const at::Tensor logits = net(images.contiguous(kChannelsLast));
    EXPECT_EQ(others, 0);
    EXPECT_LT((logits - expected).abs().max().item<double>(), 1e-5);
  }
}

TEST(ToChannelsLast, GradientsAreTheSameAndInIt) {
  // In double precision: a batch of two makes BatchNorm amplify float32's rounding until gradients differ by percents.
  ResNet net = ResNet18(10);
  net->to(torch::kDouble);
  const at::Tensor images = torch::randn({2, 3, 64, 64}, torch::kDouble);
  const auto gradients = [&] {
    net->zero_grad();
    net(images).square().sum().backward();
    std::vector<at::Tensor> result;
    for (const at::Tensor& parameter : net->parameters()) result.push_back(parameter.grad().clone());
    return result;
  };
  const std::vector<at::Tensor> expected = gradients();
  ToChannelsLast(*net);
  const std::vector<at::Tensor> found = gradients();
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::allclose(found[i], expected[i], /*rtol=*/1e-6, /*atol=*/1e-6)) << i;
    EXPECT_TRUE(found[i].dim() != 4 || found[i].is_contiguous(kChannelsLast)) << i;
  }
}

}  // namespace
}  // namespace lockstep::models
