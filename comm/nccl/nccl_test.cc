// On one GPU, with --config=cuda: a group of one rank, on CUDA tensors.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {
namespace {

std::unique_ptr<ProcessGroup> GroupOfOne() {
  const std::string path = absl::StrCat(::testing::TempDir(), "/nccl_test_store_", getpid());
  InitOptions options;
  options.backend = "cuda:nccl";
  options.init_method = absl::StrCat("file://", path);
  options.rank = 0;
  options.world_size = 1;
  options.timeout = absl::Minutes(1);
  auto group = InitProcessGroup(options);
  EXPECT_TRUE(group.ok()) << group.status();
  unlink(path.c_str());
  return group.ok() ? *std::move(group) : nullptr;
}

TEST(Nccl, ReducesOnTheGpu) {
  const auto group = GroupOfOne();
  ASSERT_NE(group, nullptr);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
    const at::Tensor x = at::arange(1000, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
    Work work = group->AllReduceAsync(x, op);
    ASSERT_EQ(work.WaitHost(absl::Now() + absl::Seconds(30)), absl::OkStatus());
    EXPECT_TRUE(at::equal(x.cpu(), at::arange(1000, at::kFloat)));
  }
}

TEST(Nccl, MovesDataOnTheGpu) {
  const auto group = GroupOfOne();
  ASSERT_NE(group, nullptr);
  const at::Tensor input = at::arange(12, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  const auto fresh = [&] { return at::zeros_like(input); };
  at::Tensor output = fresh();
  ASSERT_EQ(group->Broadcast(input, 0), absl::OkStatus());
  ASSERT_EQ(group->AllGatherIntoTensor(output, input), absl::OkStatus());
  EXPECT_TRUE(at::equal(output, input));
  output = fresh();
  ASSERT_EQ(group->ReduceScatterTensor(output, input), absl::OkStatus());
  EXPECT_TRUE(at::equal(output, input));
  output = fresh();
  ASSERT_EQ(group->AllToAllSingle(output, input), absl::OkStatus());
  EXPECT_TRUE(at::equal(output, input));
  ASSERT_EQ(group->Barrier(), absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::comm
