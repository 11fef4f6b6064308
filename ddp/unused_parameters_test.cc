#include <torch/torch.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using ::testing::AllOf;
using testing::Batch;
using testing::Branches;
using testing::ExpectClose;
using testing::ExpectTrainsAsOneProcess;
using testing::Gradients;
using ::testing::HasSubstr;
using testing::OnRanks;
using testing::Share;
using testing::Used;
using testing::Wrapped;

Options FindUnused(bool view = false, bool skip = false) {
  Options options;
  options.find_unused_parameters = true;
  options.gradient_as_bucket_view = view;
  options.skip_all_reduce_unused_params = skip;
  options.bucket_cap_mb = 1e-6;  // a bucket a parameter
  return options;
}

// Every way in which gradients may live.
void ExpectRightInEveryWay(int ranks, const testing::Plan& plan) {
  for (const bool view : {false, true}) {
    for (const bool skip : {false, true}) {
      for (const bool set_to_none : {false, true}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, view ", view, ", skip ", skip, ", set_to_none ", set_to_none));
        ExpectTrainsAsOneProcess(ranks, FindUnused(view, skip), set_to_none, plan);
      }
    }
  }
}

TEST(FindUnusedParameters, OnesUnusedOnOneRankCountAsZeroThere) {
  for (const int ranks : {2, 3})
    ExpectRightInEveryWay(ranks, [](int rank, int) { return rank == 0 ? Used{0, 1} : Used{1, 2, 3}; });
}

TEST(FindUnusedParameters, OnesUnusedOnAllRanksAreLeftAlone) {
  ExpectRightInEveryWay(2, [](int, int) { return Used{2, 0}; });
}

TEST(FindUnusedParameters, OtherOnesMayBeUnusedInEachStep) {
  ExpectRightInEveryWay(3, [](int rank, int step) { return Used{(step + rank) % 4, step * step % 4}; });
}

TEST(FindUnusedParameters, WithoutUnusedOnesNothingChanges) {
  ExpectRightInEveryWay(2, [](int, int) { return Used{0, 1, 2, 3}; });
}

TEST(FindUnusedParameters, OnesUnusedOnAllRanksKeepTheGradientTheyHad) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool view : {false, true}) {
      auto ddp = Wrapped(Branches(3), group, FindUnused(view));
      ddp(Share(Batch(8, 4, 0), group), Used{0, 1}).mean().backward();
      const auto before = Gradients(ddp.parameters());
      EXPECT_FALSE(before[2].defined());
      // On each rank its own, so a reduction would show.
      ddp.module()->weights[1].mutable_grad().fill_(group.rank() + 5);
      ddp(Share(Batch(8, 4, 1), group), Used{0}).mean().backward();
      EXPECT_TRUE(ddp.module()->weights[1].grad().equal(torch::full({4}, group.rank() + 5.0, torch::kDouble)));
      EXPECT_FALSE(ddp.module()->weights[2].grad().defined());
      EXPECT_FALSE(ddp.module()->weights[0].grad().equal(before[0]));
    }
  });
}

// Python divides a gradient that is in its bucket, which with three ranks is not the product with a third.
TEST(FindUnusedParameters, AGradientInItsBucketIsDividedAlsoWhereThisRankDidNotUseIt) {
  OnRanks(3, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(2), group, FindUnused(/*view=*/true));
    ddp(Share(Batch(9, 4, 0), group), Used{0, 1}).mean().backward();
    const torch::Tensor& gradient = ddp.module()->weights[1].mutable_grad();
    for (int i = 1; i < 40; ++i) {
      const double number = 0.1 * i;
      gradient.fill_(number);
      const Used used = group.rank() == 0 ? Used{0} : Used{0, 1};
      ddp(torch::zeros({3, 4}, torch::kDouble), used).mean().backward();
      const torch::Tensor third = torch::full({4}, number, torch::kDouble).div(3);
      EXPECT_TRUE(gradient.equal(third + third + third)) << "rank " << group.rank() << ", " << number;
    }
  });
}

struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() : branches(register_module("branches", Branches(3))) {}
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    return {branches(x, Used{0, 1}), branches(x, Used{1, 2})};
  }
  Branches branches;
};

TEST(FindUnusedParameters, AnOutputThatTheLossDoesNotUseLeavesItsParametersUnused) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool skip : {false, true}) {
      auto ddp = Wrapped(std::make_shared<TwoHeadsImpl>(), group, FindUnused(/*view=*/false, skip));
      TwoHeadsImpl reference;
      for (int step = 0; step < 4; ++step) {
        ddp.zero_grad();
        reference.zero_grad();
        auto heads = ddp(Share(Batch(8, 4, step), group));
        auto expected = reference.forward(Batch(8, 4, step));
        (step % 2 ? heads.first : heads.second).mean().backward();
        (step % 2 ? expected.first : expected.second).mean().backward();
        ExpectClose(Gradients(ddp.parameters()), Gradients(reference.parameters()));
      }
    }
  });
}

TEST(FindUnusedParameters, WhatCameTogetherUnderNoSyncIsAveragedThoughUnusedLater) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool view : {false, true}) {
      for (const bool skip : {false, true}) {
        auto ddp = Wrapped(Branches(4), group, FindUnused(view, skip));
        Branches reference(4);
        for (int round = 0; round < 3; ++round) {
          ddp.zero_grad(/*set_to_none=*/round != 1);
          reference->zero_grad(/*set_to_none=*/round != 1);
          {
            const NoSync no_sync(ddp);
            ddp(Share(Batch(8, 4, round), group), Used{group.rank(), 2}).mean().backward();
          }
          ddp(Share(Batch(8, 4, round + 9), group), Used{2}).mean().backward();
          for (int rank = 0; rank < 2; ++rank) {
            reference(Share(Batch(8, 4, round), rank, 2), Used{rank, 2}).mean().div(2).backward();
            reference(Share(Batch(8, 4, round + 9), rank, 2), Used{2}).mean().div(2).backward();
          }
          SCOPED_TRACE(absl::StrCat("view ", view, ", skip ", skip, ", round ", round));
          ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
        }
      }
    }
  });
}

TEST(FindUnusedParameters, WithoutItTheNextForwardNamesThemOnTheRankAndItsPeersErrorDoesToo) {
  const auto results = RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    auto ddp = Wrapped(Branches(3), group);
    const Used all = {0, 1, 2}, some = {0, 1};
    for (int step = 0; step < 3; ++step)
      ddp(Share(Batch(8, 4, step), group), group.rank() == 0 ? some : all).mean().backward();
    return absl::OkStatus();
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kFailedPrecondition) << results[0];
  EXPECT_THAT(results[0].message(),
              HasSubstr("rank 0: 1 of 3 parameters got no gradient in the last backward, so it was not averaged: "
                        "branch2; each parameter that requires gradients must take part in the loss, or "
                        "Options::find_unused_parameters be set"));
  EXPECT_THAT(results[1].message(), AllOf(HasSubstr("rank 0 left the group"), HasSubstr("before that, rank 0: 1 of 3"),
                                          HasSubstr("branch2")));
}

// The reductions of a step whose last branch is used by the ranks from `from` on.
const BucketStatistics& BucketOfLastBranch(DistributedDataParallel<Branches>& ddp, const ProcessGroup& group,
                                           int from) {
  const Used all = {0, 1, 2}, some = {0, 1};
  ddp(Share(Batch(8, 4, 0), group), group.rank() >= from ? all : some).mean().backward();
  for (const BucketStatistics& bucket : ddp.statistics().back().buckets) {
    if (*bucket.parameters == std::vector<std::string>{"branch2"}) return bucket;
  }
  throw std::runtime_error("no bucket of branch2 alone");
}

TEST(SkipAllReduceUnusedParams, ABucketThatNoRankUsesIsNotReduced) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(3), group, FindUnused(/*view=*/false, /*skip=*/true));
    const BucketStatistics skipped = BucketOfLastBranch(ddp, group, /*from=*/2);
    EXPECT_EQ(skipped.start, -1);
    EXPECT_EQ(skipped.end, -1);
    EXPECT_EQ(ddp.statistics().back().bytes(), 2 * 4 * 8);
    // One rank that uses it is enough.
    EXPECT_GE(BucketOfLastBranch(ddp, group, /*from=*/1).start, 0);
    EXPECT_EQ(ddp.statistics().back().bytes(), 3 * 4 * 8);
  });
}

TEST(SkipAllReduceUnusedParams, WithoutItEveryBucketIsReduced) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(3), group, FindUnused());
    EXPECT_GE(BucketOfLastBranch(ddp, group, /*from=*/2).start, 0);
    EXPECT_EQ(ddp.statistics().back().bytes(), 3 * 4 * 8);
  });
}

}  // namespace
}  // namespace lockstep::ddp
