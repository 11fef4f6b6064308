// Random models, options and numbers of ranks: training must be what one process does, and the same bits each time and
// over shared memory.
//
// A failure prints the line that runs its combination again. --test_env=LOCKSTEP_RANDOM_FIRST=1000 tries the hundred
// seeds from 1000 on.

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/join.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/random_combination.h"
#include "lockstep/ddp/testing/random_net.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using testing::BranchUse;
using testing::Combination;
using testing::Copies;
using testing::ExpectSameBits;
using testing::FirstSeed;
using testing::InputsOf;
using testing::Mix;
using testing::Once;
using testing::Optimizer;
using testing::RandomCombination;
using testing::RandomNet;

constexpr int kSeeds = 100;
constexpr double kTolerance = 1e-10;

void Backward(const Combination& c, const at::Tensor& loss) {
  if (c.twice) loss.backward({}, /*retain_graph=*/true);
  loss.backward();
}

// The parameters after each step of one process that has all ranks' inputs.
std::vector<std::vector<at::Tensor>> TrainAlone(const Combination& c) {
  RandomNet net(c, /*seed=*/c.seed);
  auto optimizer = Optimizer(c, Once(*net));
  std::vector<std::vector<at::Tensor>> after;
  int64_t pass = 0;
  for (int step = 0; step < c.steps; ++step) {
    const auto active = std::count_if(c.steps_of_rank.begin(), c.steps_of_rank.end(), [&](int n) { return n > step; });
    optimizer.zero_grad(c.set_to_none);
    for (int i = 0; i < c.averaged * (c.unsynced + 1); ++i, ++pass) {
      for (int rank = 0; rank < c.ranks; ++rank) {
        if (c.steps_of_rank[rank] <= step) continue;
        const auto divisor = static_cast<double>(c.divide_by_initial_world_size ? c.ranks : active);
        Backward(c, net(InputsOf(c, pass, rank), pass, rank) / divisor);
      }
      net->MoveShift(/*rank=*/0);
    }
    optimizer.step();
    after.push_back(Copies(Once(*net)));
  }
  return after;
}

void ExpectClose(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                 const std::string& where) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = (found[i] - expected[i]).abs().max().item<double>();
    EXPECT_LE(difference, kTolerance) << where << ", parameter " << i;
  }
}

// Gradients that somebody keeps stay as they are while later steps reuse the buckets.
class OldGradients {
 public:
  void Keep(const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters) {
      if (!parameter.grad().defined()) continue;
      kept_.push_back(parameter.grad());
      copies_.push_back(parameter.grad().clone());
    }
  }
  void ExpectUntouched() const {
    for (size_t i = 0; i < kept_.size(); ++i) EXPECT_TRUE(kept_[i].equal(copies_[i])) << "kept gradient " << i;
  }

 private:
  std::vector<at::Tensor> kept_, copies_;
};

// One step's backward passes; `pass` counts them.
void Accumulate(const Combination& c, DistributedDataParallel<RandomNet>& ddp, int rank, int64_t& pass) {
  const auto once = [&] {
    Backward(c, ddp(InputsOf(c, pass, rank), pass, rank));
    ddp.module()->MoveShift(rank);
    ++pass;
  };
  for (int i = 0; i < c.averaged; ++i) {
    {
      const NoSync no_sync(ddp);
      for (int j = 0; j < c.unsynced; ++j) once();
    }
    once();
  }
}

// A rank's part; returns its parameters at the end.
std::vector<at::Tensor> TrainRank(const Combination& c, ProcessGroup& group,
                                  const std::vector<std::vector<at::Tensor>>& expected) {
  const bool same_start = group.rank() == 0 || !c.options.init_sync;
  auto wrapped = Wrap(RandomNet(c, same_start ? c.seed : Mix({c.seed, group.rank()})), &group, c.options);
  EXPECT_TRUE(wrapped.ok()) << wrapped.status();
  if (!wrapped.ok()) return {};
  DistributedDataParallel<RandomNet> ddp = *std::move(wrapped);
  if (c.hook) {
    EXPECT_EQ(ddp.RegisterHook(hooks::AllReduce(&group)), absl::OkStatus());
  }
  auto optimizer = Optimizer(c, ddp.parameters());
  JoinOptions join_options;
  join_options.enable = c.join;
  join_options.divide_by_initial_world_size = c.divide_by_initial_world_size;
  Join join({ddp}, join_options);
  OldGradients old;
  int64_t pass = 0;
  for (int step = 0; step < c.steps_of_rank[group.rank()]; ++step) {
    optimizer.zero_grad(c.set_to_none);
    Accumulate(c, ddp, group.rank(), pass);
    old.ExpectUntouched();
    if (c.keep_old_gradients) old.Keep(ddp.parameters());
    optimizer.step();
    ExpectClose(ddp.parameters(), expected[step], absl::StrCat("rank ", group.rank(), ", step ", step));
  }
  EXPECT_EQ(join.Finish(), absl::OkStatus());
  ExpectClose(ddp.parameters(), expected.back(), absl::StrCat("rank ", group.rank(), ", the end"));
  return Copies(ddp.parameters());
}

// Over a group that shares memory; rank 0's parameters.
std::vector<at::Tensor> TrainRanksOverShm(const Combination& c, const std::vector<std::vector<at::Tensor>>& expected) {
  comm::InitOptions options;
  options.backend = "shm";
  std::vector<at::Tensor> of_rank_0;
  const auto results = comm::testing::InitRanks(options, c.ranks, [&](ProcessGroup& group) {
    const auto parameters = TrainRank(c, group, expected);
    if (group.rank() == 0) of_rank_0 = parameters;
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
  return of_rank_0;
}

std::vector<std::vector<at::Tensor>> TrainRanks(const Combination& c,
                                                const std::vector<std::vector<at::Tensor>>& expected) {
  std::vector<std::vector<at::Tensor>> of_rank(c.ranks);
  EXPECT_EQ(RunRanksOk(c.ranks, [&](ProcessGroup& group) { of_rank[group.rank()] = TrainRank(c, group, expected); }),
            absl::OkStatus());
  return of_rank;
}

class RandomCombinations : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomCombinations, ::testing::Range(FirstSeed(), FirstSeed() + kSeeds),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(RandomCombinations, TrainAsOneProcessWouldAndToTheSameBitsAgain) {
  const Combination c = RandomCombination(GetParam());
  const auto expected = TrainAlone(c);
  const auto of_rank = TrainRanks(c, expected);
  for (int rank = 1; rank < c.ranks; ++rank) ExpectSameBits(of_rank[rank], of_rank[0], absl::StrCat("rank ", rank));
  ExpectSameBits(TrainRanks(c, expected)[0], of_rank[0], "the second run");
  ExpectSameBits(TrainRanksOverShm(c, expected), of_rank[0], "over shared memory");
  // A SCOPED_TRACE would not reach the ranks' threads.
  if (HasFailure()) ADD_FAILURE() << Describe(c);
}

TEST(RandomCombination, AHundredOfThemUseEveryOptionSeveralTimes) {
  std::map<std::string, int> uses;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Combination c = RandomCombination(seed);
    uses["bucket_cap_mb"] += c.options.bucket_cap_mb.has_value();
    uses["bucket_cap_mb_list"] += !c.options.bucket_cap_mb_list.empty();
    uses["find_unused_parameters"] += c.options.find_unused_parameters;
    uses["static_graph"] += c.options.static_graph;
    uses["skip_all_reduce_unused_params"] += c.options.skip_all_reduce_unused_params;
    uses["gradient_as_bucket_view"] += c.options.gradient_as_bucket_view;
    uses["no init_sync"] += !c.options.init_sync;
    uses["non_finite"] += c.options.non_finite == NonFinite::kReport;
    uses["delayed"] += !c.options.delay_all_reduce_named_params.empty();
    uses["hook"] += c.hook;
    uses["NoSync"] += c.unsynced > 0;
    uses["Join"] += c.join && c.ranks > 1;
    uses["Join by those that have inputs"] += c.join && c.ranks > 1 && !c.divide_by_initial_world_size;
    uses["several backward passes"] += c.averaged > 1 || c.twice;
    uses["buffers"] += c.buffer;
    uses["branches by chance"] += c.branches == BranchUse::kByChance && c.ranks > 1;
    uses["branches never taken"] += c.branches == BranchUse::kSomeNever && c.ranks > 1;
    uses["tied"] += std::any_of(c.layers.begin(), c.layers.end(), [](const auto& l) { return l.tied_to >= 0; });
    uses["used twice"] += std::any_of(c.layers.begin(), c.layers.end(), [](const auto& l) { return l.times > 1; });
    uses["frozen"] += std::any_of(c.layers.begin(), c.layers.end(), [](const auto& l) { return l.frozen_weight; });
  }
  for (const auto& [what, times] : uses) EXPECT_GE(times, 4) << what;
}

}  // namespace
}  // namespace lockstep::ddp
