// On GPUs, with --config=cuda: one used as several, and several where there are.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/dp/broadcast.h"
#include "lockstep/dp/data_parallel.h"
#include "lockstep/dp/testing/nets.h"
#include "lockstep/models/resnet.h"

namespace lockstep::dp {
namespace {

using testing::Wrapped;

models::ResNet SmallResNet() {
  at::globalContext().setAllowTF32CuDNN(false);  // its rounding depends on the batch's size
  torch::manual_seed(5);
  models::ResNet net(models::ResNetOptions{{1, 1, 1, 1}, false, 10, models::BatchNorm});
  net->to(torch::kCUDA);
  net->eval();  // else each replica normalises by its own chunk
  return net;
}

std::vector<DeviceId> EveryGpu() {
  std::vector<DeviceId> ids;
  for (int i = 0; i < static_cast<int>(torch::cuda::device_count()); ++i) ids.emplace_back(i);
  return ids;
}

// Trains some steps, with batches that come from the CPU, beside the module alone.
void ExpectTrainsAsOneDevice(const Options& options) {
  models::ResNet alone = SmallResNet();
  auto model = Wrapped(SmallResNet(), options);
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.01), optimizer(model.parameters(), 0.01);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor images = at::rand({8, 3, 32, 32});
    alone_optimizer.zero_grad();
    optimizer.zero_grad();
    alone(images.cuda()).pow(2).mean().backward();
    const at::Tensor output = model(images);
    EXPECT_EQ(output.device(), c10::Device("cuda:0"));
    output.pow(2).mean().backward();
    const auto expected = alone->named_parameters(), actual = model.module()->named_parameters();
    for (const auto& parameter : expected) {
      const at::Tensor gradient = actual[parameter.key()].grad();
      EXPECT_TRUE(gradient.allclose(parameter.value().grad(), 1e-3, 1e-5)) << parameter.key() << " in step " << step;
    }
    alone_optimizer.step();
    optimizer.step();
  }
}

TEST(DataParallelOnGpu, OneGpuAsSeveral) {
  Options options;
  options.device_ids = {0, 0, 0};
  ExpectTrainsAsOneDevice(options);
  options.replicate.share_memory = false;
  options.replicate.chunk_bytes = 1 << 16;
  ExpectTrainsAsOneDevice(options);
}

TEST(DataParallelOnGpu, SeveralGpus) {
  if (torch::cuda::device_count() < 2) GTEST_SKIP() << "THIS MACHINE HAS ONE GPU: replicas on several were not tested";
  Options options;
  options.device_ids = EveryGpu();
  ExpectTrainsAsOneDevice(options);
}

TEST(DataParallelOnGpu, UsesEveryVisibleGpuByDefault) {
  EXPECT_EQ(Wrapped(SmallResNet(), {}).device_ids().size(), torch::cuda::device_count());
}

TEST(DataParallelOnGpu, GathersOnTheCpu) {
  Options options;
  options.device_ids = {0, 0};
  options.output_device = -1;
  auto model = Wrapped(SmallResNet(), options);
  const at::Tensor output = model(at::rand({4, 3, 32, 32}));
  EXPECT_TRUE(output.is_cpu());
  output.sum().backward();
  EXPECT_TRUE(model.parameters()[0].grad().is_cuda());
}

TEST(DataParallelOnGpu, MovesTheModuleToItsOnlyDevice) {
  torch::nn::Linear net(4, 2);
  Options options;
  options.device_ids = {0};
  auto model = Wrapped(net, options);
  EXPECT_TRUE(net->weight.is_cuda());
  EXPECT_TRUE(model(at::rand({3, 4})).is_cuda());
}

TEST(DataParallelOnGpu, NamesAModuleLeftOnTheCpu) {
  Options options;
  options.device_ids = {0, 0};
  auto model = Wrapped(torch::nn::Linear(4, 2), options);
  EXPECT_EQ(
      TorchStatus("",
                  [&] {
                    model(at::rand({3, 4}));
                  })
          .message(),
      "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of them, weight, "
      "on device: cpu");
}

TEST(BroadcastOnGpu, BringsGradientsBack) {
  at::Tensor tensor = at::ones({3}).set_requires_grad(true);
  const auto copies = Broadcast({tensor}, {c10::Device("cuda:0"), c10::Device("cuda:0")});
  (copies[0][0] + 2 * copies[1][0]).sum().backward();
  EXPECT_TRUE(tensor.grad().equal(at::full({3}, 3.f)));
}

}  // namespace
}  // namespace lockstep::dp
