#include "lockstep/ddp/no_sync.h"

#include <torch/torch.h>

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::ExpectClose;
using testing::Gradients;
using testing::OnRanks;
using testing::SeededMlp;
using testing::Share;
using testing::Wrapped;

Options WithViews(bool view) {
  Options options;
  options.gradient_as_bucket_view = view;
  options.bucket_cap_mb = 1e-6;
  return options;
}

// The gradients of `net` over the batches of some steps.
template <typename Net>
void Accumulate(Net& net, const ProcessGroup* group, int first, int last) {
  for (int step = first; step < last; ++step) {
    const auto batch = Batch(8, 4, step);
    net(group ? Share(batch, *group) : batch).pow(2).mean().backward();
  }
}

TEST(NoSync, TheFirstBackwardAfterItAveragesWhatHasComeTogether) {
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [&](ProcessGroup& group) {
      for (const bool view : {false, true}) {
        auto ddp = Wrapped(SeededMlp(1), group, WithViews(view));
        for (int round = 0; round < 3; ++round) {
          SCOPED_TRACE(absl::StrCat(ranks, " ranks, view ", view, ", round ", round));
          auto reference = SeededMlp(1);
          ddp.zero_grad(/*set_to_none=*/round != 1);
          {
            const NoSync no_sync(ddp);
            Accumulate(ddp, &group, 0, 3);
          }
          Accumulate(ddp, &group, 3, 4);
          // Rows that the ranks do not share evenly would weigh differently.
          for (int rank = 0; rank < ranks; ++rank) {
            for (int step = 0; step < 4; ++step)
              reference(Share(Batch(8, 4, step), rank, ranks)).pow(2).mean().div(ranks).backward();
          }
          ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
        }
      }
    });
  }
}

TEST(NoSync, UnderItGradientsAreTheRanksOwnAndNothingIsReduced) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(1), group);
    auto alone = SeededMlp(1);
    const NoSync no_sync(ddp);
    Accumulate(ddp, &group, 0, 2);
    Accumulate(alone, &group, 0, 2);
    ExpectClose(Gradients(ddp.parameters()), Gradients(alone->parameters()), 0);
    EXPECT_TRUE(ddp.statistics().empty());
  });
}

TEST(NoSync, GuardsMayBeNestedAndEndWithAnException) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(1), group);
    {
      const NoSync outer(ddp);
      { const NoSync inner(ddp); }
      Accumulate(ddp, &group, 0, 1);
      EXPECT_TRUE(ddp.statistics().empty());
    }
    try {
      const NoSync no_sync(ddp);
      throw std::runtime_error("out of it");
    } catch (const std::runtime_error&) {
    }
    Accumulate(ddp, &group, 1, 2);
    EXPECT_EQ(ddp.statistics().size(), 1);
  });
}

TEST(NoSync, TheForwardDecidesNotTheBackward) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(1), group);
    torch::Tensor loss;
    {
      const NoSync no_sync(ddp);
      loss = ddp(Batch(8, 4, 0)).mean();
    }
    loss.backward();
    EXPECT_TRUE(ddp.statistics().empty());
    loss = ddp(Batch(8, 4, 0)).mean();
    const NoSync no_sync(ddp);
    loss.backward();
    EXPECT_EQ(ddp.statistics().size(), 1);
  });
}

TEST(NoSync, AHandleMayMoveUnderIt) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(1), group);
    const NoSync no_sync(ddp);
    auto moved = std::move(ddp);
    Accumulate(moved, &group, 0, 1);
    EXPECT_TRUE(moved.statistics().empty());
  });
}

// As PyTorch's: the forward that follows one under NoSync keeps each rank's buffers.
TEST(NoSync, BuffersAreNotBroadcastBeforeTheForwardThatFollows) {
  OnRanks(2, [](ProcessGroup& group) {
    torch::nn::BatchNorm1d norm(4);
    norm->to(torch::kDouble);
    auto ddp = Wrapped(norm, group);
    const auto mean_is_the_same_on_both = [&] {
      const torch::Tensor sum = norm->running_mean.clone();
      EXPECT_TRUE(group.AllReduce(sum).ok());
      return sum.allclose(norm->running_mean * 2);
    };
    norm->running_mean.fill_(group.rank());
    {
      const NoSync no_sync(ddp);
      ddp(torch::zeros({2, 4}, torch::kDouble)).sum().backward();
      EXPECT_TRUE(mean_is_the_same_on_both());
      norm->running_mean.fill_(group.rank());
    }
    ddp(torch::zeros({2, 4}, torch::kDouble)).sum().backward();
    EXPECT_FALSE(mean_is_the_same_on_both());
    ddp(torch::zeros({2, 4}, torch::kDouble)).sum().backward();
    EXPECT_TRUE(mean_is_the_same_on_both());
  });
}

}  // namespace
}  // namespace lockstep::ddp
