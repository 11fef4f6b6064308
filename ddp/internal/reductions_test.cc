#include "lockstep/ddp/internal/reductions.h"

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::ddp::internal {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using torch::Tensor;

const Tensor kNone;

std::vector<ReducedParameter> TwoParameters() {
  std::vector<ReducedParameter> parameters;
  for (const char* const name : {"a", "b"}) parameters.push_back({name, torch::ones({2}).requires_grad_()});
  return parameters;
}

GradientBucketsOptions PrivateMemory() {
  GradientBucketsOptions options;
  options.allocate = [](int64_t numel, at::ScalarType dtype) -> absl::StatusOr<Tensor> {
    return torch::empty({numel}, dtype);
  };
  return options;
}

// A bucket for each of two parameters, with reductions among the ranks of `group`.
struct Buckets {
  explicit Buckets(ProcessGroup& group, UsedParameters used_parameters = UsedParameters(), bool skip_unused = false)
      : parameters(TwoParameters()),
        used(std::move(used_parameters)),
        recorder(group.rank(), std::nullopt),
        buckets(&parameters, &used, PrivateMemory()),
        reductions(&group, &used, &recorder, skip_unused, /*partial=*/nullptr) {
    buckets.Build({{0}, {1}});
    reductions.SetBuckets(buckets);
    std::vector<BucketStatistics> statistics(2);
    recorder.SetBuckets(statistics);
  }

  // As a backward does with a gradient of `value` for each parameter.
  void FillAndStart(float value) {
    for (const int i : {0, 1}) {
      parameters[i].tensor.mutable_grad() = torch::full({2}, value * (i + 1));
      buckets.Fill(i, kNone, reductions.DivisorOnFill(buckets[i]));
      reductions.Start(buckets[i]);
    }
  }

  void ExpectResult(int bucket, float expected) {
    const absl::StatusOr<Tensor> result = reductions.Wait(buckets[bucket]);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->equal(torch::full({2}, expected))) << *result;
  }

  std::vector<ReducedParameter> parameters;
  UsedParameters used;
  StepRecorder recorder;
  GradientBuckets buckets;
  Reductions reductions;
};

TEST(Reductions, AverageOverTheRanks) {
  EXPECT_EQ(RunRanksOk(3,
                       [](ProcessGroup& group) {
                         Buckets two(group);
                         for (int step = 0; step < 2; ++step) {
                           two.FillAndStart(3.0f * group.rank());
                           two.ExpectResult(0, 3);
                           two.ExpectResult(1, 6);
                           EXPECT_TRUE(two.reductions.Done(0));
                           two.reductions.End();
                           EXPECT_FALSE(two.reductions.Done(0));
                         }
                       }),
            absl::OkStatus());
}

TEST(Reductions, DivideByAnotherNumberForOneBackward) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         Buckets two(group);
                         two.reductions.SetDivisor(1);
                         two.FillAndStart(4);
                         two.ExpectResult(0, 8);
                         two.ExpectResult(1, 16);
                         two.reductions.End();
                         two.FillAndStart(4);
                         two.ExpectResult(0, 4);
                         two.ExpectResult(1, 8);
                       }),
            absl::OkStatus());
}

TEST(Reductions, LeaveDivisionAndReductionToAHook) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         Buckets two(group);
                         std::vector<int> seen;
                         two.reductions.SetHook([&](GradBucket& bucket) {
                           seen.push_back(bucket.index);
                           return Future(bucket.buffer + 1);
                         });
                         EXPECT_TRUE(two.reductions.has_hook());
                         two.FillAndStart(4);
                         EXPECT_FALSE(two.reductions.Done(0));
                         two.ExpectResult(0, 5);
                         two.ExpectResult(1, 9);
                         EXPECT_EQ(seen, (std::vector<int>{0, 1}));
                       }),
            absl::OkStatus());
}

TEST(Reductions, RefuseAHooksTensorOfAnotherShape) {
  EXPECT_EQ(RunRanksOk(1,
                       [](ProcessGroup& group) {
                         Buckets two(group);
                         two.reductions.SetHook([](GradBucket&) { return Future(torch::zeros({3})); });
                         two.FillAndStart(4);
                         const absl::Status refused = absl::InvalidArgumentError(
                             "rank 0: the hook's tensor for bucket 0 has shape [3], expected [2]");
                         EXPECT_EQ(two.reductions.Wait(two.buckets[0]).status(), refused);
                         EXPECT_EQ(two.reductions.WaitForStarted(two.buckets), refused);
                         two.reductions.End();
                         EXPECT_EQ(two.reductions.WaitForStarted(two.buckets), absl::OkStatus());
                       }),
            absl::OkStatus());
}

TEST(Reductions, SkipABucketThatNoRankUses) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         UsedParameters used(2, torch::kCPU, /*each_step=*/true);
                         used.Mark(1);
                         Buckets two(group, std::move(used), /*skip_unused=*/true);
                         two.FillAndStart(4);
                         two.ExpectResult(0, 2);  // divided, and not summed
                         two.ExpectResult(1, 8);
                       }),
            absl::OkStatus());
}

TEST(Reductions, SumSparseGradientsAndAlwaysDivideThem) {
  EXPECT_EQ(
      RunRanksOk(
          2,
          [](ProcessGroup& group) {
            Buckets two(group);
            two.parameters = {{"table", torch::ones({3, 2}).requires_grad_(), /*sparse=*/true}};
            two.buckets.Build({{0}});
            two.reductions.SetBuckets(two.buckets);
            two.reductions.SetHook([](GradBucket&) { return Future(torch::zeros({1})); });
            const Tensor row = torch::full({1, 1}, group.rank(), torch::kLong);
            two.parameters[0].tensor.mutable_grad() = torch::sparse_coo_tensor(row, torch::full({1, 2}, 4.0f), {3, 2});
            two.buckets.Fill(0, kNone, two.reductions.DivisorOnFill(two.buckets[0]));
            two.reductions.Start(two.buckets[0]);
            const absl::StatusOr<Tensor> sum = two.reductions.Wait(two.buckets[0]);
            ASSERT_TRUE(sum.ok()) << sum.status();
            EXPECT_TRUE(sum->to_dense().equal(torch::tensor({{2.0f, 2.0f}, {2.0f, 2.0f}, {0.0f, 0.0f}})));
          }),
      absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp::internal
