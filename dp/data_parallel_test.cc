#include "lockstep/dp/data_parallel.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/dp/testing/nets.h"
#include "lockstep/models/resnet.h"

namespace lockstep::dp {
namespace {
using testing::ExpectClose;
using testing::Gradients;
using ::testing::HasSubstr;
using testing::Message;
using testing::Mlp;
using testing::OnCpus;
using testing::Seeded;
using testing::Wrapped;

class DataParallelTest : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  static Options FromParameters() {
    Options options = OnCpus(std::get<0>(GetParam()));
    options.replicate.share_memory = std::get<1>(GetParam());
    options.replicate.chunk_bytes = 200;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, DataParallelTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()), [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "Shared" : "Copied");
                         });

TEST_P(DataParallelTest, TrainsAsOneDevice) {
  auto alone = Seeded<Mlp>();
  auto model = Wrapped(Seeded<Mlp>(), FromParameters());
  torch::optim::SGD alone_optimizer(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    const at::Tensor batch = at::rand({7, 6}, at::kDouble);
    alone_optimizer.zero_grad();
    optimizer.zero_grad();
    const at::Tensor expected = alone(batch), actual = model(batch);
    EXPECT_TRUE(actual.allclose(expected, 1e-12, 1e-12));
    expected.pow(2).mean().backward();
    actual.pow(2).mean().backward();
    ExpectClose(Gradients(model.module()), Gradients(alone), 1e-13);
    alone_optimizer.step();
    optimizer.step();
  }
}

TEST_P(DataParallelTest, AccumulatesGradientsOverForwards) {
  auto alone = Seeded<Mlp>();
  auto model = Wrapped(Seeded<Mlp>(), FromParameters());
  const at::Tensor a = at::rand({4, 6}, at::kDouble), b = at::rand({5, 6}, at::kDouble);
  (model(a).sum() * model(b).sum()).backward();
  model(a).sum().backward();
  (alone(a).sum() * alone(b).sum()).backward();
  alone(a).sum().backward();
  ExpectClose(Gradients(model.module()), Gradients(alone), 1e-12);
}

TEST_P(DataParallelTest, PassesGradientsOnToItsInputs) {
  auto alone = Seeded<Mlp>();
  auto model = Wrapped(Seeded<Mlp>(), FromParameters());
  at::Tensor x = at::rand({5, 6}, at::kDouble).set_requires_grad(true);
  at::Tensor y = x.detach().clone().set_requires_grad(true);
  model(x).pow(2).sum().backward();
  alone(y).pow(2).sum().backward();
  EXPECT_TRUE(x.grad().allclose(y.grad(), 1e-12, 1e-12));
}

// Runs a module on one device chunk by chunk, each with the buffers that it has now. Only the buffers of the first
// chunk stay: this is the definition of DataParallel.
at::Tensor ChunkByChunk(models::ResNet& net, const at::Tensor& images, int64_t chunks) {
  std::vector<at::Tensor> buffers, outputs, kept;
  for (const at::Tensor& buffer : net->buffers()) buffers.push_back(buffer.clone());
  for (const at::Tensor& chunk : images.chunk(chunks)) {
    for (size_t i = 0; i < buffers.size(); ++i) net->buffers()[i].data().copy_(buffers[i]);
    outputs.push_back(net(chunk));
    if (!kept.empty()) continue;
    for (const at::Tensor& buffer : net->buffers()) kept.push_back(buffer.clone());
  }
  for (size_t i = 0; i < kept.size(); ++i) net->buffers()[i].data().copy_(kept[i]);
  return at::cat(outputs);
}

models::ResNet SmallResNet() {
  torch::manual_seed(5);
  return models::ResNet(models::ResNetOptions{{1, 1, 1, 1}, false, 10, models::BatchNorm});
}

TEST(DataParallel, TrainsAResNetAsOneDeviceDoesChunkByChunk) {
  for (const int replicas : {2, 4}) {
    models::ResNet alone = SmallResNet();
    auto model = Wrapped(SmallResNet(), OnCpus(replicas));
    torch::optim::SGD alone_optimizer(alone->parameters(), 0.05), optimizer(model.parameters(), 0.05);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor images = at::rand({8, 3, 32, 32});
      alone_optimizer.zero_grad();
      optimizer.zero_grad();
      ChunkByChunk(alone, images, replicas).pow(2).mean().backward();
      model(images).pow(2).mean().backward();
      // Two gradients have one sum; four are added in another order. Rounding grows with the second step.
      ExpectClose(Gradients(model.module()), Gradients(alone), replicas == 2 ? 0 : 1e-6);
      const auto buffers = model.module()->named_buffers();
      for (const auto& buffer : alone->named_buffers()) {
        EXPECT_TRUE(buffers[buffer.key()].allclose(buffer.value(), 1e-5, 1e-6)) << buffer.key();
      }
      if (replicas > 2) break;
      alone_optimizer.step();
      optimizer.step();
    }
  }
}

TEST(DataParallel, GivesTheSameBitsEveryTime) {
  std::vector<std::vector<at::Tensor>> runs;
  for (int run = 0; run < 3; ++run) {
    auto model = Wrapped(SmallResNet(), OnCpus(4));
    model(at::ones({8, 3, 32, 32})).pow(2).mean().backward();
    runs.push_back(Gradients(model.module()));
  }
  ExpectClose(runs[1], runs[0], 0);
  ExpectClose(runs[2], runs[0], 0);
}

// ---- What stays of a forward.

TEST(DataParallel, KeepsTheBuffersOfReplicaZero) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(1).momentum(1)));
  auto model = Wrapped(net, OnCpus(2));
  model(at::tensor({1.f, 3.f, 100.f, 300.f}).view({4, 1}));
  const auto* const norm = net->ptr(0)->as<torch::nn::BatchNorm1d>();
  EXPECT_EQ(norm->running_mean.item<float>(), 2);
  EXPECT_EQ(norm->running_var.item<float>(), 2);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST(DataParallel, GivesReplicasTheBuffersOfReplicaZero) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(1).momentum(1)));
  auto model = Wrapped(net, OnCpus(2));
  const at::Tensor x = at::tensor({1.f, 3.f, 100.f, 300.f}).view({4, 1});
  model(x);
  model.eval();
  EXPECT_TRUE(model(x).equal(net->forward(x)));
}

// ---- Modes.

TEST(DataParallel, RecordsNothingWithoutGradMode) {
  auto model = Wrapped(Seeded<Mlp>(), OnCpus(2));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(model(at::rand({4, 6}, at::kDouble)).requires_grad());
}

TEST(DataParallel, ComputesUnderTheCallersAutocast) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4));
  auto model = Wrapped(net, OnCpus(2));
  const at::Tensor x = at::rand({4, 4});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::increment_nesting();
  const at::Tensor actual = model(x), expected = net->forward(x);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(actual.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(actual.equal(expected));
  actual.sum().backward();
  EXPECT_EQ(net->parameters()[0].grad().scalar_type(), at::kFloat);
}

TEST(DataParallel, OfTiedWeightsSumsTheirGradients) {
  torch::nn::Linear layer(4, 4);
  torch::nn::Sequential net(layer, layer);
  auto model = Wrapped(net, OnCpus(2));
  EXPECT_EQ(model.parameters().size(), 2);
  const at::Tensor x = at::rand({4, 4});
  model(x).sum().backward();
  const at::Tensor gradient = layer->weight.grad().clone();
  net->zero_grad();
  net->forward(x).sum().backward();
  EXPECT_TRUE(gradient.allclose(layer->weight.grad()));
}

TEST(DataParallel, SumsSparseGradients) {
  torch::nn::Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)));
  auto model = Wrapped(net, OnCpus(2));
  model(at::tensor({1L, 2L, 2L, 3L})).sum().backward();
  const at::Tensor gradient = net->parameters()[0].grad();
  EXPECT_TRUE(gradient.is_sparse());
  EXPECT_TRUE(gradient.to_dense().select(1, 0).equal(at::tensor({0.f, 1.f, 2.f, 1.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f})));
}

// Its forward makes the rows that it uses shorter, in place.
torch::nn::Sequential LongRows() {
  torch::nn::Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 3).max_norm(0.1)));
  net->parameters()[0].data().fill_(1);
  return net;
}

TEST(DataParallel, RefusesAForwardThatWritesToSharedParameters) {
  auto model = Wrapped(LongRows(), OnCpus(2));
  EXPECT_EQ(
      Message([&] {
        model(at::tensor({0L, 1L, 2L, 3L}));
      }),
      "DataParallel: the forward wrote to parameter 0.weight, whose memory the replicas share, so all of them may "
      "have written to it: restore it, and set ReplicateOptions::share_memory to false");
  Options options = OnCpus(2);
  options.replicate.share_memory = false;
  auto copying = Wrapped(LongRows(), options);
  const at::Tensor norms = copying(at::tensor({0L, 1L, 2L, 3L})).norm(2, 1);
  EXPECT_TRUE(norms.allclose(at::full({4}, 0.1)));
}

// ---- Devices.

struct ThreadImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    thread = std::this_thread::get_id();
    return x;
  }
  std::thread::id thread;
};
TORCH_MODULE(Thread);

TEST(DataParallel, WithOneDeviceCallsTheModuleOnTheCallingThread) {
  auto model = Wrapped(Thread(), OnCpus(1));
  model(at::ones({2}));
  EXPECT_EQ(model.module()->thread, std::this_thread::get_id());
  EXPECT_EQ(model(at::scalar_tensor(1)).dim(), 0);
}

TEST(DataParallel, WithoutAGpuCallsTheModuleByDefault) {
  if (Wrapped(Thread(), {}).device_ids().empty()) {
    auto model = Wrapped(Thread(), {});
    EXPECT_EQ(model(at::ones({2})).size(0), 2);
    EXPECT_EQ(model.module()->thread, std::this_thread::get_id());
  }
}

struct HalfOnMetaImpl : torch::nn::Cloneable<HalfOnMetaImpl> {
  void reset() override {
    register_parameter("here", at::ones({1}));
    register_buffer("elsewhere", at::ones({1}, at::kMeta));
  }
  HalfOnMetaImpl() { reset(); }
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(HalfOnMeta);

TEST(DataParallel, NamesATensorThatIsNotOnTheFirstDevice) {
  auto model = Wrapped(HalfOnMeta(), OnCpus(2));
  EXPECT_EQ(
      Message([&] { model(at::rand({2})); }),
      "module must have its parameters and buffers on device cpu (device_ids[0]) but found one of them, elsewhere, "
      "on device: meta");
}

TEST(DataParallel, RefusesDevicesThatDoNotExist) {
  Options options;
  options.device_ids = {DeviceId(-1), DeviceId(-5)};
  EXPECT_EQ(Wrap(Seeded<Mlp>(), options).status(),
            absl::InvalidArgumentError("device_ids[1]: expected the number of a GPU, or -1 for the CPU, found -5"));
  options.device_ids = {DeviceId(99)};
  EXPECT_THAT(Wrap(Seeded<Mlp>(), options).status().message(),
              HasSubstr("device_ids[0]: expected a visible device, found cuda:99 where there are"));
  options.device_ids = {c10::kCPU, c10::kCPU};
  options.output_device = DeviceId(99);
  EXPECT_THAT(Wrap(Seeded<Mlp>(), options).status().message(), HasSubstr("output_device: expected a visible device"));
}

TEST(DataParallel, RefusesDevicesOfSeveralTypes) {
  Options options;
  options.device_ids = {c10::kCPU, c10::Device("meta")};
  EXPECT_EQ(Wrap(Seeded<Mlp>(), options).status().message(),
            "device_ids[1]: expected a device of the type of cpu (device_ids[0]), found meta");
}

// ---- Errors.

TEST(DataParallel, NamesTheReplicaThatThrowsAndGoesOn) {
  auto model = Wrapped(Seeded<Mlp>(), OnCpus(2));
  const std::string message = Message([&] { model(at::rand({4, 5}, at::kDouble)); });
  EXPECT_THAT(message, HasSubstr("mat1 and mat2 shapes cannot be multiplied"));
  EXPECT_THAT(message, HasSubstr("in replica 0 on device cpu"));
  model(at::rand({4, 6}, at::kDouble)).sum().backward();
  EXPECT_TRUE(model.module()->last->weight.grad().defined());
}

TEST(DataParallel, OfAModuleWithoutCloneSaysWhatToDo) {
  auto model = Wrapped(Thread(), OnCpus(2));
  EXPECT_THAT(Message([&] { model(at::ones({2})); }), HasSubstr("derive the module and its submodules from torch"));
  auto parts = Wrap(Thread(), OnCpus(2), Parts<Thread>([] { return Thread(); }));
  EXPECT_EQ((*parts)(at::ones({2})).size(0), 2);
}

}  // namespace
}  // namespace lockstep::dp
