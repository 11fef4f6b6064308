// On one GPU, with --config=cuda: a group of one rank.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/gpu_ranks.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using testing::Batch;
using testing::ExpectClose;
using testing::Gradients;
using testing::OnGpuRanks;
using testing::SeededMlp;
using testing::SeededMlpOnGpu;
using testing::Wrapped;

TEST(DeviceIds, InputsAreMovedToTheModulesGpu) {
  OnGpuRanks(1, [](comm::ProcessGroup& group) {
    Options options;
    options.device_ids = {torch::Device("cuda:0")};
    auto ddp = Wrapped(SeededMlpOnGpu(1), group, options);
    auto reference = SeededMlp(1);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      reference->zero_grad();
      const auto output = ddp(Batch(8, 4, step));  // on the CPU
      EXPECT_TRUE(output.is_cuda());
      output.pow(2).mean().backward();
      reference(Batch(8, 4, step)).pow(2).mean().backward();
      std::vector<torch::Tensor> gradients;
      for (const auto& gradient : Gradients(ddp.parameters())) gradients.push_back(gradient.cpu());
      ExpectClose(gradients, Gradients(reference->parameters()));
    }
  });
}

TEST(DeviceIds, WithoutThemInputsStayWhereTheyAre) {
  OnGpuRanks(1, [](comm::ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlpOnGpu(1), group);
    EXPECT_THROW(ddp(Batch(8, 4, 0)), c10::Error);
    ddp(Batch(8, 4, 0).cuda()).sum().backward();
  });
}

TEST(OutputDevice, OutputsAreMovedThere) {
  OnGpuRanks(1, [](comm::ProcessGroup& group) {
    Options options;
    options.device_ids = {torch::Device("cuda:0")};
    options.output_device = torch::Device("cpu");
    auto ddp = Wrapped(SeededMlpOnGpu(1), group, options);
    const auto output = ddp(Batch(8, 4, 0));
    EXPECT_TRUE(output.is_cpu());
    output.sum().backward();
    EXPECT_TRUE(ddp.parameters()[0].grad().is_cuda());
  });
}

}  // namespace
}  // namespace lockstep::ddp
