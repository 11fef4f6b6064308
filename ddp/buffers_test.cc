// Several forward passes before a backward: the broadcast of buffers leaves what that backward needs.

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::ExpectClose;
using testing::ExpectSameBits;
using testing::Gradients;
using testing::OnRanks;
using testing::Share;
using testing::Thrown;
using testing::Wrapped;

struct DiscriminatorImpl : torch::nn::Module {
  DiscriminatorImpl()
      : norm(register_module("norm", torch::nn::BatchNorm1d(4))), scale(register_buffer("scale", torch::ones({4}))) {
    weight = register_parameter("weight", torch::arange(4, torch::kDouble).add(1));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return (norm(x) * weight * scale).pow(2).mean(); }
  torch::nn::BatchNorm1d norm;
  torch::Tensor scale, weight;
};

// The gradients of one loss over two batches.
template <typename Net>
torch::Tensor GanLoss(Net& net, const ProcessGroup& group, int step) {
  const torch::Tensor real = net(Share(Batch(12, 4, step), group)), fake = net(Share(Batch(12, 4, step + 9), group));
  return real - fake;
}

TEST(Buffers, TwoForwardsAndOneBackwardTrainANetWithBatchNorm) {
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [](ProcessGroup& group) {
      Options without;
      without.broadcast_buffers = false;
      auto ddp = Wrapped(std::make_shared<DiscriminatorImpl>(), group);
      auto reference = Wrapped(std::make_shared<DiscriminatorImpl>(), group, without);
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        reference.zero_grad();
        GanLoss(ddp, group, step).backward();
        GanLoss(reference, group, step).backward();
        // A norm that trains does not depend on its running statistics.
        ExpectClose(Gradients(ddp.parameters()), Gradients(reference.parameters()));
        ddp(Share(Batch(12, 4, step), group));
        torch::Tensor mean = ddp.module()->norm->running_mean.clone();
        ddp.module()->eval();
        ddp(Share(Batch(12, 4, step), group));
        ThrowIfError(group.Broadcast(mean, 0));
        ExpectSameBits({ddp.module()->norm->running_mean}, {mean}, "the mean of rank 0");
        ddp.module()->train();
      }
    });
  }
}

TEST(Buffers, ANormThatDoesNotTrainKeepsTheStatisticsThatItsBackwardNeeds) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<DiscriminatorImpl>(), group);
    ddp(Share(Batch(12, 4, 0), group)).backward();
    ddp.module()->eval();
    ddp.zero_grad();
    const torch::Tensor loss = GanLoss(ddp, group, 1);
    const auto reference = std::make_shared<DiscriminatorImpl>();
    reference->norm->running_mean.copy_(ddp.module()->norm->running_mean);
    reference->norm->running_var.copy_(ddp.module()->norm->running_var);
    reference->eval();
    loss.backward();
    (reference->forward(Batch(12, 4, 1)) - reference->forward(Batch(12, 4, 10))).backward();
    ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
  });
}

TEST(Buffers, ABackwardWhoseBufferHasOtherNumbersNowIsRefused) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<DiscriminatorImpl>(), group);
    if (group.rank() == 1) ddp.module()->scale.mul_(3);
    ddp.module()->eval();
    ddp(Share(Batch(12, 4, 0), group));  // gives all ranks the buffers of rank 0
    const torch::Tensor loss = ddp(Share(Batch(12, 4, 1), group));
    if (group.rank() == 1) ddp.module()->scale.variable_data().mul_(3);
    ddp(Share(Batch(12, 4, 2), group));
    if (group.rank() == 1) {
      EXPECT_THAT(Thrown([&] { loss.backward(); }).message(), ::testing::HasSubstr("modified by an inplace operation"));
    }
  });
}

}  // namespace
}  // namespace lockstep::ddp
