// On one GPU, with --config=cuda: a group of one rank.

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using testing::Batch;
using testing::ExpectClose;
using testing::Gradients;
using testing::SeededMlp;
using testing::Wrapped;

std::unique_ptr<comm::ProcessGroup> GroupOfOne() {
  const std::string path = absl::StrCat(::testing::TempDir(), "/devices_test_store_", getpid());
  comm::InitOptions options;
  options.backend = "cuda:nccl";
  options.init_method = absl::StrCat("file://", path);
  options.rank = 0;
  options.world_size = 1;
  options.timeout = absl::Minutes(1);
  auto group = comm::InitProcessGroup(options);
  EXPECT_TRUE(group.ok()) << group.status();
  unlink(path.c_str());
  return group.ok() ? *std::move(group) : nullptr;
}

testing::Mlp OnGpu() {
  auto net = SeededMlp(1);
  net->to(torch::kCUDA);
  return net;
}

TEST(DeviceIds, InputsAreMovedToTheModulesGpu) {
  const auto group = GroupOfOne();
  ASSERT_NE(group, nullptr);
  Options options;
  options.device_ids = {torch::Device("cuda:0")};
  auto ddp = Wrapped(OnGpu(), *group, options);
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
}

TEST(DeviceIds, WithoutThemInputsStayWhereTheyAre) {
  const auto group = GroupOfOne();
  ASSERT_NE(group, nullptr);
  auto ddp = Wrapped(OnGpu(), *group);
  EXPECT_THROW(ddp(Batch(8, 4, 0)), c10::Error);
  ddp(Batch(8, 4, 0).cuda()).sum().backward();
}

TEST(OutputDevice, OutputsAreMovedThere) {
  const auto group = GroupOfOne();
  ASSERT_NE(group, nullptr);
  Options options;
  options.device_ids = {torch::Device("cuda:0")};
  options.output_device = torch::Device("cpu");
  auto ddp = Wrapped(OnGpu(), *group, options);
  const auto output = ddp(Batch(8, 4, 0));
  EXPECT_TRUE(output.is_cpu());
  output.sum().backward();
  EXPECT_TRUE(ddp.parameters()[0].grad().is_cuda());
}

}  // namespace
}  // namespace lockstep::ddp
