#include "lockstep/ddp/sync_batch_norm/norm_factory.h"

#include <torch/torch.h>

#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/sync_batch_norm/sync_batch_norm.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;

constexpr int64_t kChannels = 3;

torch::Tensor Values(const std::vector<int64_t>& shape, uint64_t seed) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed), torch::kDouble);
}

void ExpectNear(const torch::Tensor& actual, const torch::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.defined(), expected.defined());
  if (!actual.defined() || actual.numel() == 0) return;
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_LE((actual.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>(), tolerance);
}

// A model that takes a norm factory.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const NormFactory& norm) : norm1(norm(kChannels)), norm2(norm(4)) {
    conv1 = register_module("conv1", torch::nn::Conv2d(2, kChannels, 3));
    register_module("norm1", norm1.ptr());
    conv2 = register_module("conv2", torch::nn::Conv2d(kChannels, 4, 3));
    register_module("norm2", norm2.ptr());
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    uint64_t seed = 0;
    for (const torch::Tensor& parameter : parameters()) parameter.copy_(Values(parameter.sizes().vec(), ++seed));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return norm2.forward(conv2(torch::tanh(norm1.forward(conv1(x))))).sin();
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::AnyModule norm1, norm2;
};
TORCH_MODULE(Net);

template <typename Forward>
void TrainNet(const Forward& forward, const std::vector<torch::Tensor>& parameters, int rank, int ranks) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    const torch::Tensor batch = Values({6, 2, 8, 8}, 400 + step);
    optimizer.zero_grad();
    forward(batch.slice(0, rank, c10::nullopt, ranks)).mean().backward();
    optimizer.step();
  }
}

TEST(NormFactory, MakesAModelTrainUnderDistributedDataParallelAsInOneProcess) {
  Net reference(BatchNorm2dFactory());
  TrainNet([&](const torch::Tensor& x) { return reference(x); }, reference->parameters(), 0, 1);
  for (const int ranks : {2, 3}) {
    const auto body = [&](ProcessGroup& group) {
      Net net(SyncBatchNormFactory(&group));
      Options options;
      options.bucket_cap_mb = 1e-4;  // 104 bytes: its all-reduces come between those of the layers
      auto ddp = Wrap(net, &group, options);
      ASSERT_TRUE(ddp.ok()) << ddp.status();
      TrainNet([&](const torch::Tensor& x) { return (*ddp)(x); }, ddp->parameters(), group.rank(), group.size());
      for (const auto& item : reference->named_parameters()) {
        SCOPED_TRACE(item.key());
        ExpectNear(net->named_parameters()[item.key()], item.value(), 1e-12);
      }
      for (const auto& item : reference->named_buffers()) {
        SCOPED_TRACE(item.key());
        ExpectNear(net->named_buffers()[item.key()], item.value(), 1e-12);
      }
    };
    EXPECT_EQ(RunRanksOk(ranks, body), absl::OkStatus());
  }
}

TEST(NormFactory, DecidesWhoseStatisticsALayerTakes) {
  const auto body = [](ProcessGroup& group) {
    torch::nn::AnyModule norm = SyncBatchNormFactory(&group)(kChannels);
    torch::nn::AnyModule local = BatchNorm2dFactory()(kChannels);
    const torch::Tensor whole = Values({4, kChannels, 2, 2}, 1).to(torch::kFloat);
    const auto share = [&](const torch::Tensor& tensor) { return tensor.narrow(0, 2 * group.rank(), 2); };
    ExpectNear(norm.forward(share(whole)), share(local.forward(whole)), 1e-6);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp
