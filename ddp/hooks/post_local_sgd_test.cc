#include "lockstep/ddp/hooks/post_local_sgd.h"

#include <torch/torch.h>

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/hooks/periodic_model_averager.h"
#include "lockstep/ddp/hooks/test_bucket.h"

namespace lockstep::ddp::hooks {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;

// Four ranks; ranks 0 and 1 are one sub-group, ranks 2 and 3 the other.
void OnTwoPairs(const std::function<absl::Status(ProcessGroup& group, ProcessGroup& pair)>& body) {
  comm::InitOptions options;
  options.backend = "threads";
  options.timeout = absl::Seconds(30);
  const auto results = comm::testing::InitRanks(options, 4, [&](ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(auto first, group.NewGroup({0, 1}));
    LOCKSTEP_ASSIGN_OR_RETURN(auto second, group.NewGroup({2, 3}));
    return body(group, first ? *first : *second);
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(results[rank], absl::OkStatus()) << "rank " << rank;
}

// Returns the result for a bucket of the rank's number.
float ReducedRank(const CommunicationHook& hook, int rank, int index = 0, bool is_last = true) {
  GradBucket bucket = MakeBucket({at::full({3}, static_cast<float>(rank))});
  bucket.index = index;
  bucket.is_last = is_last;
  return Reduce(hook, bucket)[2].item<float>();
}

TEST(PostLocalSgd, AveragesOverAllRanksFirstAndOverTheSubgroupLater) {
  OnTwoPairs([](ProcessGroup& group, ProcessGroup& pair) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const CommunicationHook hook, PostLocalSgd(&group, &pair, {2}));
    const float of_pair = group.rank() < 2 ? 0.5 : 2.5;
    for (int step = 0; step < 4; ++step) {
      for (int index = 0; index < 2; ++index) {  // two buckets are one step
        EXPECT_EQ(ReducedRank(hook, group.rank(), index, index == 1), step < 2 ? 1.5 : of_pair) << "step " << step;
      }
    }
    return absl::OkStatus();
  });
}

TEST(PostLocalSgd, CanLeaveEachRankItsOwnGradients) {
  OnTwoPairs([](ProcessGroup& group, ProcessGroup&) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const CommunicationHook hook, PostLocalSgd(&group, nullptr, {1, false}));
    EXPECT_EQ(ReducedRank(hook, group.rank()), 1.5);
    EXPECT_EQ(ReducedRank(hook, group.rank()), group.rank());
    return absl::OkStatus();
  });
}

TEST(PostLocalSgd, RefusesOptionsThatDoNotFit) {
  OnTwoPairs([](ProcessGroup& group, ProcessGroup& pair) {
    EXPECT_THAT(std::string(PostLocalSgd(&group, &pair, {-1}).status().message()),
                HasSubstr("start_local_sgd_iter is -1"));
    EXPECT_THAT(std::string(PostLocalSgd(&group, nullptr, {1}).status().message()), HasSubstr("subgroup is null"));
    return absl::OkStatus();
  });
}

TEST(PostLocalSgd, WithAnAveragerReachesTheMinimumOfAllRanks) {
  OnTwoPairs([](ProcessGroup& group, ProcessGroup& pair) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const CommunicationHook hook, PostLocalSgd(&group, &pair, {5}));
    LOCKSTEP_ASSIGN_OR_RETURN(PeriodicModelAverager averager, PeriodicModelAverager::Create(&group, {3, 5}));
    const at::Tensor weight = at::zeros({3});
    // Rank r wants r; step 95 is the last to average. Between averages the pairs drift apart.
    for (int step = 0; step < 97; ++step) {
      weight.sub_(0.1 * Reduce(hook, MakeBucket({weight - group.rank()})));
      LOCKSTEP_RETURN_IF_ERROR(averager.AverageParameters({weight}));
      if (step == 95) {
        EXPECT_NEAR(weight[0].item<float>(), 1.5, 0.01);
      }
    }
    EXPECT_NEAR(weight[0].item<float>() - 1.5, 0.1 * (group.rank() < 2 ? -1 : 1), 0.01);
    return absl::OkStatus();
  });
}

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
