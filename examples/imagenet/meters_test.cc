#include "lockstep/examples/imagenet/meters.h"

#include <ATen/ops/tensor.h>

#include "gtest/gtest.h"

namespace lockstep::examples::imagenet {
namespace {

using Form = AverageMeter::Form;

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

}  // namespace
}  // namespace lockstep::examples::imagenet
