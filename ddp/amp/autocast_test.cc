#include "lockstep/ddp/amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <thread>

#include "gtest/gtest.h"

namespace lockstep::ddp {
namespace {

// The dtype in which a float matrix product computes now.
c10::ScalarType ProductDtype() { return torch::ones({2, 2}).mm(torch::ones({2, 2})).scalar_type(); }

TEST(Autocast, ComputesALinearLayerInBfloat16WithGradientsInFloat) {
  const torch::nn::Linear linear(4, 3);
  torch::nn::Linear net = linear;
  const torch::Tensor input = torch::randn({5, 4});
  torch::Tensor output;
  {
    const Autocast autocast(torch::kCPU, torch::kBFloat16);
    output = net(input);
  }
  EXPECT_EQ(output.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(linear->weight.scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::allclose(output.to(torch::kFloat), net(input), 0.02, 0.02));
  output.to(torch::kFloat).sum().backward();
  EXPECT_EQ(linear->weight.grad().scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::allclose(linear->weight.grad()[0], input.sum(0), 0.02, 0.02));
}

TEST(Autocast, TakesHalfAndTheThreadsOwnDtype) {
  {
    const Autocast autocast(torch::kCPU, torch::kHalf);
    EXPECT_EQ(ProductDtype(), torch::kHalf);
  }
  const Autocast autocast(torch::kCPU);
  EXPECT_EQ(ProductDtype(), torch::kBFloat16);
}

TEST(Autocast, NestsAndRestoresWhatItFound) {
  EXPECT_EQ(ProductDtype(), torch::kFloat);
  {
    const Autocast outer(torch::kCPU, torch::kHalf);
    {
      const Autocast off(torch::kCPU, std::nullopt, /*enabled=*/false);
      EXPECT_EQ(ProductDtype(), torch::kFloat);
      {
        const Autocast inner(torch::kCPU, torch::kBFloat16, /*enabled=*/true, /*cache_enabled=*/false);
        EXPECT_EQ(ProductDtype(), torch::kBFloat16);
        EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
      }
      EXPECT_EQ(ProductDtype(), torch::kFloat);
    }
    EXPECT_EQ(ProductDtype(), torch::kHalf);
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  }
  EXPECT_EQ(ProductDtype(), torch::kFloat);
  EXPECT_EQ(at::autocast::get_autocast_dtype(torch::kCPU), torch::kBFloat16);
}

TEST(Autocast, RestoresWhenAnExceptionPasses) {
  EXPECT_THROW(
      {
        const Autocast autocast(torch::kCPU, torch::kHalf);
        torch::ones({2, 2}).mm(torch::ones({3, 3}));
      },
      c10::Error);
  EXPECT_EQ(ProductDtype(), torch::kFloat);
}

TEST(Autocast, SetsTheStateOfEachDeviceTypeApart) {
  const Autocast autocast(torch::kCUDA, torch::kBFloat16);
  EXPECT_TRUE(at::autocast::is_autocast_enabled(torch::kCUDA));
  EXPECT_EQ(at::autocast::get_autocast_dtype(torch::kCUDA), torch::kBFloat16);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
  EXPECT_EQ(ProductDtype(), torch::kFloat);
}

TEST(Autocast, ForgetsCastParametersWhenTheOutermostEnds) {
  const torch::Tensor parameter = torch::ones({2, 2}).requires_grad_();
  const auto product = [&] { return parameter.mm(torch::ones({2, 2}))[0][0].item<float>(); };
  const auto set = [&](float value) {
    const torch::NoGradGuard no_grad;
    parameter.fill_(value);
  };
  {
    const Autocast outer(torch::kCPU, torch::kBFloat16);
    {
      const Autocast inner(torch::kCPU, torch::kBFloat16);
      EXPECT_EQ(product(), 2);
    }
    set(3);
    EXPECT_EQ(product(), 2);  // the copy made in the inner one
  }
  const Autocast next(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(product(), 6);
}

TEST(Autocast, HoldsForItsThreadOnly) {
  const Autocast autocast(torch::kCPU, torch::kBFloat16);
  c10::ScalarType other = torch::kBFloat16;
  std::thread([&] { other = ProductDtype(); }).join();
  EXPECT_EQ(other, torch::kFloat);
}

TEST(Autocast, RefusesOtherDeviceTypesAndDtypes) {
  EXPECT_THROW(Autocast(torch::kCPU, torch::kDouble), c10::ValueError);
  EXPECT_THROW(Autocast(torch::kMeta, torch::kHalf), c10::ValueError);
  EXPECT_EQ(ProductDtype(), torch::kFloat);
}

}  // namespace
}  // namespace lockstep::ddp
