#include "lockstep/ddp/amp/autocast.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/torch.h>

#include <limits>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/distributed_data_parallel.h"

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

using comm::ProcessGroup;
using comm::testing::RunRanksOk;

constexpr int kSteps = 40;

torch::nn::Linear Net() {
  torch::nn::Linear net(8, 1);
  const at::NoGradGuard no_grad;
  net->weight.zero_();
  net->bias.zero_();
  return net;
}

// Rank r's samples of y = sum(x), another share of them in each step.
at::Tensor Inputs(int rank, int step) { return at::randn({16, 8}, at::detail::createCPUGenerator(100 * step + rank)); }

at::Tensor Loss(const at::Tensor& outputs, const at::Tensor& inputs) {
  return (outputs.to(at::kFloat) - inputs.sum(1, /*keepdim=*/true)).pow(2).mean();
}

struct Trained {
  std::vector<at::Tensor> parameters;
  double loss = 0;
  double scale = 0;
  int skipped = 0;
};

// Trains under Autocast and a GradScaler; in step `overflow` rank 1's gradient is infinite.
Trained Train(ProcessGroup& group, at::ScalarType dtype, int overflow) {
  auto ddp = Wrap(Net(), &group);
  ThrowIfError(ddp.status());
  GradScalerOptions options;
  options.init_scale = 1024;
  auto scaler = GradScaler::Create(options);
  ThrowIfError(scaler.status());
  torch::optim::SGD optimizer(ddp->parameters(), 0.05);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const at::Tensor inputs = Inputs(group.rank(), step);
    at::Tensor loss = [&] {
      const Autocast low(at::kCPU, dtype);
      const at::Tensor outputs = (*ddp)(inputs);
      EXPECT_EQ(outputs.scalar_type(), dtype);
      return Loss(outputs, inputs);
    }();
    trained.loss = loss.item<double>();
    if (step == overflow && group.rank() == 1) loss = loss * std::numeric_limits<float>::infinity();
    scaler->Scale(loss).backward();
    for (const at::Tensor& parameter : ddp->parameters()) EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
    const auto stepped = scaler->Step(optimizer);
    ThrowIfError(stepped.status());
    trained.skipped += !*stepped;
    ThrowIfError(scaler->Update());
  }
  trained.parameters = ddp->parameters();
  trained.scale = scaler->GetScale();
  return trained;
}

TEST(DistributedDataParallel, TrainsUnderAutocastAndGradScaler) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    std::vector<Trained> trained(2);
    EXPECT_EQ(RunRanksOk(2, [&](ProcessGroup& group) { trained[group.rank()] = Train(group, dtype, -1); }),
              absl::OkStatus());
    EXPECT_LT(trained[0].loss, 0.01);
    EXPECT_EQ(trained[0].skipped, 0);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(trained[0].parameters[i].equal(trained[1].parameters[i]));
    EXPECT_TRUE(at::allclose(trained[0].parameters[0], at::ones({1, 8}), 0, 0.05));
  }
}

TEST(DistributedDataParallel, AnOverflowOnOneRankIsAStepThatAllSkip) {
  std::vector<Trained> trained(2);
  EXPECT_EQ(RunRanksOk(2, [&](ProcessGroup& group) { trained[group.rank()] = Train(group, at::kHalf, 7); }),
            absl::OkStatus());
  for (const Trained& rank : trained) {
    EXPECT_EQ(rank.skipped, 1);
    EXPECT_EQ(rank.scale, 512);
  }
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(trained[0].parameters[i].equal(trained[1].parameters[i]));
  EXPECT_LT(trained[0].loss, 0.01);
}

}  // namespace
}  // namespace lockstep::ddp
