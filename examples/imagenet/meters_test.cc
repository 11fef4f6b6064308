#include "lockstep/examples/imagenet/meters.h"

#include <ATen/ops/tensor.h>

#include <cmath>
#include <cstdint>
#include <mutex>
#include <set>

#include "gtest/gtest.h"
#include "lockstep/base/even_blocks.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::examples::imagenet {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using Form = AverageMeter::Form;

BatchResult Result(double loss, int64_t images, int64_t in_top1, int64_t in_top5) {
  BatchResult result;
  result.loss = loss;
  result.images = images;
  result.in_top1 = in_top1;
  result.in_top5 = in_top5;
  return result;
}

TEST(AverageMeter, WeighsValuesByTheirCounts) {
  AverageMeter loss("Loss", Form::kLoss);
  EXPECT_EQ(loss.average(), 0);
  loss.Update(1, 3);
  loss.Update(5, 1);
  EXPECT_EQ(loss.value(), 5);
  EXPECT_EQ(loss.average(), 2);
  EXPECT_EQ(loss.ToString(), "Loss 5.0000e+00 (2.0000e+00)");
  loss.Reset(30, 10);
  EXPECT_EQ(loss.ToString(), "Loss 5.0000e+00 (3.0000e+00)");
}

TEST(ProgressLine, HasTheFormOfPythonsExample) {
  AverageMeter time("Time", Form::kSeconds), top1("Acc@1", Form::kPercent);
  time.Update(0.2);
  time.Update(0.4);
  top1.Update(12.5);
  EXPECT_EQ(ProgressLine("Epoch: [3]", 10, 5005, {&time, &top1}),
            "Epoch: [3][  10/5005]\tTime  0.400 ( 0.300)\tAcc@1  12.50 ( 12.50)");
}

TEST(CountInTopK, CountsRowsWhoseTargetIsAmongTheLargest) {
  const at::Tensor logits = at::tensor({3., 2., 1., 1., 2., 3.}).view({2, 3}), target = at::tensor({0, 1}, at::kLong);
  EXPECT_EQ(CountInTopK(logits, target, 1), 1);
  EXPECT_EQ(CountInTopK(logits, target, 2), 2);
  EXPECT_EQ(CountInTopK(logits, target, 5), 2);
  EXPECT_EQ(CountInTopK(at::tensor({NAN, 1.}).view({1, 2}), at::tensor({0}, at::kLong), 1), 0);
}

TEST(PassMeters, ShowTheBatchesOfUpdateUntilTheyCoverWhatAllRanksCounted) {
  EXPECT_TRUE(RunRanksOk(3, [](ProcessGroup& group) {
                PassMeters meters(/*parts=*/3);
                if (group.rank() < 2) {  // the third has no images
                  const BatchResult result = group.rank() == 0 ? Result(4, 1, 1, 1) : Result(8, 3, 0, 3);
                  meters.Count(group.rank(), result);
                  meters.Update(result, absl::Seconds(1));
                }
                EXPECT_EQ(meters.loss.average(), group.rank() == 0 ? 4 : group.rank() == 1 ? 8 : 0);
                EXPECT_EQ(meters.loss.count(), group.rank() == 0 ? 1 : group.rank() == 1 ? 3 : 0);
                const at::Tensor sums = meters.TakeSums();
                EXPECT_TRUE(group.AllReduce(sums).ok());
                meters.Show(sums);
                EXPECT_EQ(meters.loss.average(), 7);
                EXPECT_EQ(meters.loss.count(), 4);
                EXPECT_EQ(meters.top1.average(), 25);
                EXPECT_EQ(meters.top5.average(), 100);
                EXPECT_EQ(meters.TakeSums().count_nonzero().item<int64_t>(), 0) << "they were taken";
              }).ok());
}

TEST(PassMeters, HaveTheSameBitsOnAnyNumberOfRanks) {
  constexpr int kVirtualRanks = 7;
  std::mutex mutex;
  std::set<double> losses, top1;
  for (int ranks = 1; ranks <= kVirtualRanks; ++ranks) {
    EXPECT_TRUE(RunRanksOk(ranks, [&](ProcessGroup& group) {
                  const int64_t first = BlockBegin(kVirtualRanks, ranks, group.rank());
                  const int64_t last = BlockBegin(kVirtualRanks, ranks, group.rank() + 1);
                  PassMeters meters(kVirtualRanks);
                  for (int batch = 0; batch < 5; ++batch) {
                    for (int64_t v = first; v < last; ++v) {
                      meters.Count(
                          v, Result(std::exp(std::sin(100. * static_cast<double>(v) + batch)), 3 + v % 4, v % 3, 3));
                    }
                  }
                  const at::Tensor sums = meters.TakeSums();
                  EXPECT_TRUE(group.AllReduce(sums).ok());
                  meters.Show(sums);
                  const std::lock_guard<std::mutex> lock(mutex);
                  losses.insert(meters.loss.average());
                  top1.insert(meters.top1.average());
                }).ok());
  }
  EXPECT_EQ(losses.size(), 1);
  EXPECT_EQ(top1.size(), 1);
}

}  // namespace
}  // namespace lockstep::examples::imagenet
