// Scripted modules under DataParallel. The reference is the same module on the same chunks, one after the other.

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/sgd.h>

#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/dp/data_parallel.h"
#include "lockstep/models/scripted/script_module.h"
#include "lockstep/models/scripted/testing/modules.h"

namespace lockstep::models::scripted {
namespace {

constexpr int kSteps = 5;  // the interpreter profiles the first two

dp::DataParallel<ScriptModule> Wrapped(const ScriptModule& net, size_t replicas) {
  dp::Options options;
  options.device_ids.assign(replicas, dp::DeviceId(-1));
  auto model = dp::Wrap(net, options);
  ThrowIfError(model.status());
  return *std::move(model);
}

TEST(ScriptedDp, TrainsAsOneModuleOnTheChunks) {
  ScriptModule net(testing::Mlp()), alone(testing::Mlp());
  auto model = Wrapped(net, 3);
  torch::optim::SGD optimizer(model.parameters(), 0.05), alone_optimizer(alone->parameters(), 0.05);
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor batch = testing::Batch(9, step);
    optimizer.zero_grad();
    const at::Tensor output = model(batch).toTensor();
    output.square().sum().backward();
    optimizer.step();
    alone_optimizer.zero_grad();
    std::vector<at::Tensor> buffers, outputs;
    for (const at::Tensor& chunk : batch.chunk(3)) {
      outputs.push_back(alone(chunk).toTensor());
      if (buffers.empty()) {
        for (const at::Tensor& buffer : alone->buffers()) buffers.push_back(buffer.clone());
      }
    }
    at::cat(outputs).square().sum().backward();
    for (size_t i = 0; i < buffers.size(); ++i) alone->buffers()[i].set_data(buffers[i]);  // replica 0's
    alone_optimizer.step();
    EXPECT_TRUE(at::allclose(output, at::cat(outputs), 0, 1e-12)) << step;
  }
  for (const auto& parameter : alone->named_parameters()) {
    EXPECT_TRUE(at::allclose(net->named_parameters()[parameter.key()], parameter.value(), 0, 1e-12)) << parameter.key();
  }
  for (const auto& buffer : alone->named_buffers()) {
    EXPECT_TRUE(at::allclose(net->named_buffers()[buffer.key()], buffer.value(), 0, 1e-12)) << buffer.key();
  }
}

// LibTorch records the first call. If replicas shared the record, the bits would depend on which of them was first.
TEST(ScriptedDp, EveryRunHasTheSameBits) {
  const auto train = [] {
    ScriptModule net(testing::Branches());
    auto model = Wrapped(net, 4);
    torch::optim::SGD optimizer(model.parameters(), 0.05);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      model(testing::Batch(64, step), true).toGenericDict().at("sum").toTensorVector()[0].square().sum().backward();
      optimizer.step();
    }
    return net->parameters();
  };
  const std::vector<at::Tensor> expected = train();
  for (int run = 0; run < 8; ++run) {
    const std::vector<at::Tensor> found = train();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << run << ": " << i;
  }
}

TEST(ScriptedDp, GathersADict) {
  auto model = Wrapped(ScriptModule(testing::Branches()), 2);
  const at::Tensor batch = testing::Batch(4, 1);
  const c10::IValue output = model(batch, true);
  ScriptModule alone(testing::Branches());
  const c10::IValue expected = alone(batch, true);
  for (const char* key : {"sum", "parts"}) {
    const auto found = output.toGenericDict().at(key).toTensorVector();
    const auto whole = expected.toGenericDict().at(key).toTensorVector();
    ASSERT_EQ(found.size(), whole.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], whole[i])) << key << i;
  }
}

TEST(ScriptedDp, AnAssignedBufferIsThatOfTheFirstReplica) {
  ScriptModule net(testing::Averaging());
  auto model = Wrapped(net, 2);
  double mean = 1;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor batch = testing::Batch(4, step);
    const at::Tensor output = model(batch).toTensor();
    EXPECT_TRUE(at::allclose(output, batch * net->named_parameters()["weight"] * mean)) << step;
    output.sum().backward();
    mean = (mean + batch.narrow(0, 0, 2).mean().item<double>()) / 2;
    EXPECT_NEAR(net->named_buffers()["mean"].item<double>(), mean, 1e-12) << step;
  }
}

TEST(ScriptedDp, TheReplicasTakeOverTheMode) {
  ScriptModule net(testing::Mlp());
  auto model = Wrapped(net, 2);
  model(testing::Batch(4, 1));
  model.eval();
  ScriptModule alone(net);
  const at::Tensor batch = testing::Batch(4, 2);
  EXPECT_TRUE(at::allclose(model(batch).toTensor(), alone(batch).toTensor(), 0, 1e-12));
}

}  // namespace
}  // namespace lockstep::models::scripted
