#include "lockstep/ddp/join.h"

#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using testing::Batch;
using testing::ExpectClose;
using ::testing::HasSubstr;
using testing::OnRanks;
using testing::SeededMlp;
using testing::Share;
using testing::Wrapped;

using Counts = std::vector<int>;  // of inputs, one a rank

const std::vector<Counts>& Uneven() {
  static const auto* const counts =
      new std::vector<Counts>{{3, 1}, {1, 3}, {3, 0}, {0, 3}, {2, 2}, {2, 4, 1}, {0, 3, 3}, {4, 2, 0, 3}};
  return *counts;
}

torch::Tensor Loss(const torch::Tensor& output) { return output.pow(2).mean(); }

// The parameters of one process that does what the ranks do: in each step those with inputs left count equally.
std::vector<torch::Tensor> Reference(const Counts& counts, bool divide_by_all) {
  auto net = SeededMlp(3);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const int ranks = static_cast<int>(counts.size());
  for (int step = 0; step < *std::max_element(counts.begin(), counts.end()); ++step) {
    optimizer.zero_grad();
    const auto active = std::count_if(counts.begin(), counts.end(), [&](int count) { return count > step; });
    for (int rank = 0; rank < ranks; ++rank) {
      if (counts[rank] > step)
        Loss(net(Share(Batch(12, 4, step), rank, ranks))).div(divide_by_all ? ranks : active).backward();
    }
    optimizer.step();
  }
  return net->parameters();
}

Options SmallBuckets() {
  Options options;
  options.bucket_cap_mb = 1e-6;  // so that laying out anew changes every bucket
  return options;
}

template <typename Net>
void Train(DistributedDataParallel<Net>& ddp, const ProcessGroup& group, int steps) {
  torch::optim::SGD optimizer(ddp.parameters(), 0.1);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    Loss(ddp(Share(Batch(12, 4, step), group))).backward();
    optimizer.step();
  }
}

void ExpectRight(const Counts& counts, const Options& options, const JoinOptions& join_options,
                 bool with_hook = false) {
  SCOPED_TRACE(absl::StrCat(absl::StrJoin(counts, ","), " inputs"));
  const auto expected = Reference(counts, join_options.divide_by_initial_world_size);
  OnRanks(static_cast<int>(counts.size()), [&](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(3), group, options);
    if (with_hook) {
      EXPECT_EQ(ddp.RegisterHook(hooks::AllReduce(&group)), absl::OkStatus());
    }
    Join join({ddp}, join_options);
    Train(ddp, group, counts[group.rank()]);
    EXPECT_EQ(join.Finish(), absl::OkStatus());
    ExpectClose(ddp.parameters(), expected);
  });
}

TEST(Join, RanksThatAreDoneCountAsZeroInTheAverageOfAll) {
  for (const Counts& counts : Uneven()) ExpectRight(counts, SmallBuckets(), {});
}

TEST(Join, OrNotAtAll) {
  JoinOptions by_active;
  by_active.divide_by_initial_world_size = false;
  for (const Counts& counts : Uneven()) ExpectRight(counts, SmallBuckets(), by_active);
}

TEST(Join, GoesWithBucketViews) {
  Options options = SmallBuckets();
  options.gradient_as_bucket_view = true;
  for (const Counts& counts : Uneven()) ExpectRight(counts, options, {});
}

TEST(Join, GoesWithFindUnusedParameters) {
  Options options = SmallBuckets();
  options.find_unused_parameters = true;
  for (const bool skip : {false, true}) {
    options.skip_all_reduce_unused_params = skip;
    for (const Counts& counts : Uneven()) ExpectRight(counts, options, {});
  }
}

TEST(Join, GoesWithAStaticGraph) {
  Options options = SmallBuckets();
  options.static_graph = true;
  for (const Counts& counts : Uneven()) ExpectRight(counts, options, {});
}

TEST(Join, GoesWithACommunicationHook) {
  for (const Counts& counts : Uneven()) ExpectRight(counts, SmallBuckets(), {}, /*with_hook=*/true);
}

TEST(Join, GoesWithSparseGradients) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)), group);
    const torch::Tensor before = ddp.module()->weight.detach().clone();
    torch::optim::SGD optimizer(ddp.parameters(), 1);
    Join join({ddp});
    for (int step = 0; step < 2 * group.rank(); ++step) {  // rank 0 has no inputs
      optimizer.zero_grad();
      ddp(torch::tensor({1, 3})).sum().backward();
      optimizer.step();
    }
    EXPECT_EQ(join.Finish(), absl::OkStatus());
    const torch::Tensor expected = before - torch::tensor({0.0f, 1.0f, 0.0f, 1.0f}).view({4, 1});
    ExpectClose({ddp.module()->weight}, {expected}, 1e-6);
  });
}

TEST(Join, NotEnabledDoesNothing) {
  JoinOptions off;
  off.enable = false;
  ExpectRight({2, 2}, SmallBuckets(), off);
  // Where it is needed, its absence shows.
  const auto results = RunRanks(2, [&](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(3), group);
    Join join({ddp}, off);
    Train(ddp, group, 1 + group.rank());
    return join.Finish();
  });
  EXPECT_EQ(results[0], absl::OkStatus());
  EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable) << results[1];
}

TEST(Join, NoSyncWorksUnderIt) {
  const Counts counts = {1, 3};
  auto reference = SeededMlp(3);
  torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    reference_optimizer.zero_grad();
    for (int rank = 0; rank < 2; ++rank) {
      if (counts[rank] <= step) continue;
      Loss(reference(Share(Batch(12, 4, step), rank, 2))).div(2).backward();
      Loss(reference(Share(Batch(12, 4, step + 50), rank, 2))).div(2).backward();
    }
    reference_optimizer.step();
  }
  OnRanks(2, [&](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(3), group, SmallBuckets());
    torch::optim::SGD optimizer(ddp.parameters(), 0.1);
    Join join({ddp});
    for (int step = 0; step < counts[group.rank()]; ++step) {
      optimizer.zero_grad();
      {
        const NoSync no_sync(ddp);
        Loss(ddp(Share(Batch(12, 4, step), group))).backward();
      }
      Loss(ddp(Share(Batch(12, 4, step + 50), group))).backward();
      optimizer.step();
    }
    EXPECT_EQ(join.Finish(), absl::OkStatus());
    ExpectClose(ddp.parameters(), reference->parameters());
  });
}

TEST(Join, TwoModulesWhoseStepsFollowEachOther) {
  for (const bool divide_by_all : {true, false}) {
    for (const Counts& counts : Uneven()) {
      const auto expected = Reference(counts, divide_by_all);
      OnRanks(static_cast<int>(counts.size()), [&](ProcessGroup& group) {
        auto a = Wrapped(SeededMlp(3), group, SmallBuckets());
        auto b = Wrapped(SeededMlp(3), group, SmallBuckets());
        torch::optim::SGD optimizer_a(a.parameters(), 0.1), optimizer_b(b.parameters(), 0.1);
        JoinOptions options;
        options.divide_by_initial_world_size = divide_by_all;
        Join join({a, b}, options);
        for (int step = 0; step < counts[group.rank()]; ++step) {
          optimizer_a.zero_grad();
          optimizer_b.zero_grad();
          Loss(a(Share(Batch(12, 4, step), group))).backward();
          Loss(b(Share(Batch(12, 4, step), group))).backward();
          optimizer_a.step();
          optimizer_b.step();
        }
        EXPECT_EQ(join.Finish(), absl::OkStatus());
        ExpectClose(a.parameters(), expected);
        ExpectClose(b.parameters(), expected);
      });
    }
  }
}

// Counts in its buffer, by its rank's own step, how often it was called.
struct CountingImpl : torch::nn::Module {
  explicit CountingImpl(int by) : by(by) {
    weight = register_parameter("weight", torch::ones({4}, torch::kDouble));
    count = register_buffer("count", torch::zeros({1}, torch::kLong));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    count.add_(by);
    return x * weight;
  }
  const int by;
  torch::Tensor weight, count;
};

TEST(Join, BuffersComeFromTheHighestRankThatHasInputs) {
  OnRanks(3, [](ProcessGroup& group) {
    const Counts counts = {3, 1, 2};
    auto net = std::make_shared<CountingImpl>(/*by=*/group.rank() == 0 ? 1 : 10 * group.rank());
    auto ddp = Wrapped(net, group);
    Join join({ddp});
    Train(ddp, group, counts[group.rank()]);
    EXPECT_EQ(join.Finish(), absl::OkStatus());
    // Rank 2 adds 20 in steps 0 and 1, both times to its own; then rank 0 adds 1 to its own of step 1, which it had
    // from rank 2: 20 + 1, and 1 once more.
    EXPECT_EQ(net->count.item<int64_t>(), 22);
  });
}

TEST(Join, TrainingGoesOnAfterwardsAndASecondJoinToo) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(3), group, SmallBuckets());
    auto twice = SeededMlp(3);
    for (const int extra : {0, 1}) {
      Join join({ddp});
      Train(ddp, group, extra ? 2 - group.rank() : 1 + group.rank());
      EXPECT_EQ(join.Finish(), absl::OkStatus());
      Train(ddp, group, 2);
    }
    const torch::Tensor sum = ddp.parameters()[0].detach().clone();
    EXPECT_EQ(group.AllReduce(sum), absl::OkStatus());
    ExpectClose({sum.div(2)}, {ddp.parameters()[0]}, 1e-14);
    EXPECT_FALSE(ddp.parameters()[0].allclose(twice->parameters()[0]));
  });
}

TEST(Join, ARankWithoutInputsLearnsItsStaticGraphInALaterEpoch) {
  for (const bool skip : {false, true}) {
    for (const int first_epoch : {1, 3}) {  // steps of the rank that has inputs
      for (const int without : {0, 1}) {
        auto reference = SeededMlp(3);
        torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
        const auto reference_step = [&](int step, bool one) {
          reference_optimizer.zero_grad();
          for (int rank = 0; rank < 2; ++rank) {
            if (!one || rank != without) Loss(reference(Share(Batch(12, 4, step), rank, 2))).div(2).backward();
          }
          reference_optimizer.step();
        };
        for (int step = 0; step < first_epoch; ++step) reference_step(step, /*one=*/true);
        for (int step = 0; step < 4; ++step) reference_step(step, /*one=*/false);
        OnRanks(2, [&](ProcessGroup& group) {
          Options options = SmallBuckets();
          options.static_graph = true;
          options.skip_all_reduce_unused_params = skip;
          auto ddp = Wrapped(SeededMlp(3), group, options);
          for (const int epoch : {0, 1}) {
            Join join({ddp});
            Train(ddp, group, epoch == 1 ? 4 : (group.rank() == without ? 0 : first_epoch));
            EXPECT_EQ(join.Finish(), absl::OkStatus());
          }
          ExpectClose(ddp.parameters(), reference->parameters());
        });
      }
    }
  }
}

TEST(Join, OnEarlyTerminationEveryRankStopsNamingTheRank) {
  const auto results = RunRanks(3, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(3), group);
    JoinOptions options;
    options.throw_on_early_termination = true;
    Join join({ddp}, options);
    Train(ddp, group, group.rank() == 1 ? 1 : 3);
    return join.Finish();
  });
  EXPECT_EQ(results[0], absl::OutOfRangeError("rank 0 stops: rank 1 has no inputs left"));
  EXPECT_EQ(results[1], absl::OutOfRangeError("rank 1 has no inputs left; other ranks have"));
  EXPECT_EQ(results[2], absl::OutOfRangeError("rank 2 stops: rank 1 has no inputs left"));
}

TEST(Join, WhoCatchesAnEarlyTerminationFindsItAgain) {
  const auto results = RunRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(3), group);
    JoinOptions options;
    options.throw_on_early_termination = true;
    Join join({ddp}, options);
    if (group.rank() == 1) return join.Finish();
    EXPECT_ANY_THROW(Train(ddp, group, 3));
    EXPECT_ANY_THROW(Train(ddp, group, 3));
    return join.Finish();
  });
  EXPECT_EQ(results[0], absl::OutOfRangeError("rank 0 stops: rank 1 has no inputs left"));
  EXPECT_EQ(results[1], absl::OutOfRangeError("rank 1 has no inputs left; other ranks have"));
}

TEST(Join, WithEvenInputsNobodyStopsEarly) {
  JoinOptions options;
  options.throw_on_early_termination = true;
  ExpectRight({2, 2, 2}, SmallBuckets(), options);
}

TEST(Join, GradientsAreClippedByEachRankThatHasInputs) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(3), group);
    torch::optim::SGD optimizer(ddp.parameters(), 0.1);
    ClipGradNormOptions sharded;
    sharded.sharded = true;
    Join join({ddp});
    for (int step = 0; step < 2 + 2 * group.rank(); ++step) {
      optimizer.zero_grad();
      Loss(ddp(Share(Batch(12, 4, step), group))).backward();
      EXPECT_TRUE(ClipGradNorm(group, ddp.parameters(), 0.01).ok());
      EXPECT_THAT(ClipGradNorm(group, ddp.parameters(), 0.01, sharded).status().message(),
                  HasSubstr("sharded needs all ranks, but under Join some may have finished"));
      optimizer.step();
    }
    ThrowIfError(join.Finish());
    EXPECT_TRUE(ClipGradNorm(group, ddp.parameters(), 0.01, sharded).ok());
    std::vector<torch::Tensor> of_rank_1;
    for (const torch::Tensor& parameter : ddp.parameters()) {
      of_rank_1.push_back(parameter.detach().clone());
      ThrowIfError(group.Broadcast(of_rank_1.back(), 1));
    }
    ExpectClose(ddp.parameters(), of_rank_1);
  });
}

}  // namespace
}  // namespace lockstep::ddp
