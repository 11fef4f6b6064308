#include "lockstep/ddp/hooks/post_local_sgd.h"

#include <torch/torch.h>

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/ddp/hooks/periodic_model_averager.h"
#include "lockstep/ddp/hooks/test_bucket.h"

namespace lockstep::ddp::hooks {
namespace {

using comm::ProcessGroup;
using ::testing::HasSubstr;

// Four ranks; ranks 0 and 1 are one sub-group, ranks 2 and 3 the other.
void OnTwoPairs(const std::function<absl::Status(ProcessGroup& group, ProcessGroup& pair)>& body) {
  comm::InitOptions options;
  options.backend = "threads";
  options.timeout = absl::Seconds(30);
  const auto results = comm::testing::InitRanks(options, 4, [&](ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(auto first, group.NewGroup({0, 1}));
    LOCKSTEP_ASSIGN_OR_RETURN(auto second, group.NewGroup({2, 3}));
    return body(group, first != nullptr ? *first : *second);
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(results[rank], absl::OkStatus()) << "rank " << rank;
}

// What a bucket of the rank's number becomes.
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

}  // namespace
}  // namespace lockstep::ddp::hooks
