#include "lockstep/ddp/hooks/periodic_model_averager.h"

#include <torch/torch.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::ddp::hooks {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;

TEST(PeriodicModelAverager, AveragesEveryPeriodAfterTheWarmUp) {
  EXPECT_EQ(RunRanksOk(3,
                       [](ProcessGroup& group) {
                         auto averager = PeriodicModelAverager::Create(&group, {3, 2});
                         ASSERT_TRUE(averager.ok()) << averager.status();
                         for (int step = 0; step < 10; ++step) {
                           const double own = group.rank() == 0 ? 7 : 1;  // the average is 3
                           const at::Tensor parameter = at::full({2, 2}, own + step, at::kDouble);
                           EXPECT_EQ(averager->AverageParameters({parameter}), absl::OkStatus());
                           const bool averages = step == 2 || step == 5 || step == 8;
                           EXPECT_NEAR(parameter[1][1].item<double>(), (averages ? 3 : own) + step, 1e-12) << step;
                         }
                       }),
            absl::OkStatus());
}

TEST(PeriodicModelAverager, TakesEveryDtypeAndStridesAsTheyAre) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto averager = PeriodicModelAverager::Create(&group, {1});
                         ASSERT_TRUE(averager.ok()) << averager.status();
                         const int rank = group.rank();
                         const auto leaf = at::arange(6.0).view({2, 3}).add_(rank).requires_grad_();
                         const auto wide = at::full({5}, 2.0 * rank, at::kDouble);
                         const auto transposed = at::arange(6.0).view({2, 3}).mul_(2 * rank).t();
                         ASSERT_EQ(averager->AverageParameters({leaf, wide, transposed}), absl::OkStatus());
                         EXPECT_TRUE(leaf.equal(at::arange(6.0).view({2, 3}) + 0.5));
                         EXPECT_TRUE(leaf.is_leaf());
                         EXPECT_TRUE(wide.equal(at::ones({5}, at::kDouble)));
                         EXPECT_TRUE(transposed.equal(at::arange(6.0).view({2, 3}).t()));
                         EXPECT_FALSE(transposed.is_contiguous());
                       }),
            absl::OkStatus());
}

TEST(PeriodicModelAverager, UsesOneCollectiveForEachDtype) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto averager = PeriodicModelAverager::Create(&group, {1});
                         ASSERT_TRUE(averager.ok()) << averager.status();
                         const auto call = [&] { return group.BarrierAsync().id(); };
                         EXPECT_EQ(call(), "barrier #0");
                         const at::Tensor one = at::ones({2}), two = at::ones({3}), wide = at::ones({3}, at::kDouble);
                         ASSERT_EQ(averager->AverageParameters({one, wide, two}), absl::OkStatus());
                         EXPECT_EQ(call(), "barrier #3");  // after two all-reduces
                       }),
            absl::OkStatus());
}

TEST(PeriodicModelAverager, RefusesWhatItCannotAverage) {
  EXPECT_EQ(
      RunRanksOk(1,
                 [](ProcessGroup& group) {
                   auto averager = PeriodicModelAverager::Create(&group, {1});
                   ASSERT_TRUE(averager.ok()) << averager.status();
                   EXPECT_THAT(
                       std::string(averager->AverageParameters({at::ones({1}), at::ones({1}, at::kInt)}).message()),
                       HasSubstr("parameter 1 is Int"));
                   EXPECT_EQ(averager->AverageParameters({at::Tensor()}).code(), absl::StatusCode::kInvalidArgument);
                   EXPECT_THAT(std::string(PeriodicModelAverager::Create(&group, {0}).status().message()),
                               HasSubstr("period is 0"));
                   EXPECT_THAT(std::string(PeriodicModelAverager::Create(&group, {1, -1}).status().message()),
                               HasSubstr("warmup_steps is -1"));
                 }),
      absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp::hooks
