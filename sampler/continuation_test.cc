// An epoch that is left in the middle and taken up again, on any number of ranks.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/sampler/distributed_batch_sampler.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/testing/samplers.h"

namespace lockstep::sampler {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using testing::MakeLoader;
using testing::UpTo;

struct Epoch {
  int64_t size = 0;
  DistributedSamplerOptions options;
  int64_t number = 0;

  DistributedSampler Rank(int64_t num_replicas, int64_t rank) const {
    DistributedSamplerOptions of_rank = options;
    of_rank.num_replicas = num_replicas;
    of_rank.rank = rank;
    return DistributedSampler::Create(size, of_rank).value();
  }

  // The epoch's order: that of one rank which nothing interrupts.
  std::vector<int64_t> Order() const {
    DistributedSampler alone = Rank(1, 0);
    alone.set_epoch(number);
    return alone.Indices();
  }
};

// `num_replicas` ranks go on from `state` by `steps` indices each, or to the end of the epoch. Appends what they visit,
// in the order of the steps, and goes to where they are.
void GoOn(const Epoch& epoch, int64_t num_replicas, int64_t steps, SamplerState& state, std::vector<int64_t>& visited) {
  std::vector<DistributedSampler> ranks;
  for (int64_t rank = 0; rank < num_replicas; ++rank) {
    ranks.push_back(epoch.Rank(num_replicas, rank));
    ASSERT_EQ(ranks.back().Restore(state), absl::OkStatus());
    ranks.back().set_epoch(epoch.number);  // as a training loop does
    ranks.back().reset();
    ASSERT_EQ(ranks.back().num_remaining(), ranks.front().num_remaining());
  }
  steps = std::min(steps, ranks[0].num_remaining());
  for (int64_t step = 0; step < steps; ++step) {
    for (DistributedSampler& rank : ranks) visited.push_back(rank.next(1).value().at(0));
  }
  state = ranks[0].State(steps);
  for (DistributedSampler& rank : ranks) ASSERT_EQ(rank.State(steps), state);
}

TEST(Continuation, VisitsEachRemainingIndexOnceOverAnySequenceOfWorldSizes) {
  std::mt19937_64 random(7);
  const auto draw = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random() % (high - low + 1)); };
  for (int i = 0; i < 3000; ++i) {
    Epoch epoch;
    epoch.size = draw(1, 120);
    epoch.number = draw(0, 5);
    epoch.options.seed = draw(-3, 3);
    epoch.options.shuffle = draw(0, 3) > 0;
    epoch.options.drop_last = draw(0, 1) == 1;
    epoch.options.permutation = draw(0, 1) == 1 ? Permutation::kFeistel : Permutation::kTorch;

    DistributedSampler first = epoch.Rank(1, 0);
    first.set_epoch(epoch.number);
    SamplerState state = first.State(0);
    std::vector<int64_t> visited;
    std::string trace = absl::StrCat("case ", i, ": size ", epoch.size, ", steps x ranks:");
    int64_t num_replicas = 0, before = 0;
    while (state.consumed < epoch.size) {
      num_replicas = draw(1, 9);
      before = static_cast<int64_t>(visited.size());
      const int64_t steps = draw(1, 40);
      absl::StrAppend(&trace, " ", steps, "x", num_replicas);
      ASSERT_NO_FATAL_FAILURE(GoOn(epoch, num_replicas, steps, state, visited)) << trace;
      ASSERT_THAT(state.consumed, AnyOf(Eq(epoch.size), Eq(visited.size()))) << trace;
    }

    const std::vector<int64_t> order = epoch.Order();
    const int64_t left = epoch.size - before;  // for the ranks that ended the epoch
    if (epoch.options.drop_last) {
      ASSERT_EQ(visited.size(), epoch.size - left % num_replicas) << trace;
    } else {
      ASSERT_EQ(visited.size(), before + (left + num_replicas - 1) / num_replicas * num_replicas) << trace;
    }
    // Each index once, and where ranks were left over, the order's start again.
    for (int64_t place = 0; place < visited.size(); ++place) {
      ASSERT_EQ(visited[place], order[place % epoch.size]) << trace << ", place " << place;
    }
  }
}

TEST(Continuation, OnTheSameRanksIsTheRestOfTheEpoch) {
  Epoch epoch;
  epoch.size = 47;
  for (int64_t rank = 0; rank < 4; ++rank) {
    DistributedSampler sampler = epoch.Rank(4, rank);
    const std::vector<int64_t> whole = sampler.Indices();
    for (int64_t consumed = 0; consumed <= 12; ++consumed) {
      DistributedSampler resumed = epoch.Rank(4, rank);
      ASSERT_TRUE(resumed.Restore(sampler.State(consumed)).ok());
      EXPECT_EQ(resumed.num_remaining(), 12 - consumed);
      EXPECT_EQ(std::vector<int64_t>(resumed.begin(), resumed.end()),
                std::vector<int64_t>(whole.begin() + consumed, whole.end()));
    }
  }
}

TEST(Continuation, CountsFromTheRestoredPlace) {
  Epoch epoch;
  epoch.size = 100;
  DistributedSampler sampler = epoch.Rank(2, 0);
  ASSERT_TRUE(sampler.Restore(sampler.State(10)).ok());
  EXPECT_EQ(sampler.State(0).consumed, 20);
  sampler.reset();
  EXPECT_EQ(sampler.State(0).consumed, 20);
  EXPECT_EQ(sampler.State(5).consumed, 30);
  EXPECT_EQ(sampler.num_remaining(), 40);
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.State(5).consumed, 10);
  EXPECT_EQ(sampler.num_remaining(), 50);
}

TEST(Continuation, TheSameEpochAgainIsWholeAgain) {
  Epoch epoch;
  epoch.size = 20;
  DistributedSampler sampler = epoch.Rank(2, 0);
  ASSERT_TRUE(sampler.Restore(sampler.State(7)).ok());
  sampler.reset();
  sampler.reset();
  EXPECT_EQ(sampler.num_remaining(), 10);
  EXPECT_EQ(sampler.State(1).consumed, 2);
}

TEST(Continuation, AFinishedEpochIsFinishedForAnyNumberOfRanks) {
  Epoch epoch;
  epoch.size = 10;
  for (const bool drop_last : {false, true}) {
    epoch.options.drop_last = drop_last;
    DistributedSampler of_four = epoch.Rank(4, 0);
    const SamplerState state = of_four.State(of_four.num_samples());
    EXPECT_EQ(state.consumed, 10);
    DistributedSampler alone = epoch.Rank(1, 0);
    ASSERT_TRUE(alone.Restore(state).ok());
    EXPECT_EQ(alone.num_remaining(), 0);
    EXPECT_EQ(alone.next(1), std::nullopt);
  }
}

TEST(Continuation, OfFewerIndicesThanRanksGivesEachRankOne) {
  Epoch epoch;
  epoch.size = 10;
  epoch.options.shuffle = false;
  const SamplerState state = epoch.Rank(2, 0).State(4);
  std::vector<int64_t> visited;
  for (int64_t rank = 0; rank < 5; ++rank) {
    DistributedSampler sampler = epoch.Rank(5, rank);
    ASSERT_TRUE(sampler.Restore(state).ok());
    for (const int64_t index : sampler) visited.push_back(index);
  }
  EXPECT_THAT(visited, ElementsAre(8, 9, 0, 1, 2));
}

// Two ranks with loaders that prefetch stop after one batch each; three go on.
TEST(Continuation, CountsWhatTrainingUsedAndNotWhatALoaderPrefetched) {
  Epoch epoch;
  epoch.size = 103;
  std::vector<int64_t> visited;
  SamplerState state;
  for (int64_t rank = 0; rank < 2; ++rank) {
    const DistributedSampler sampler = epoch.Rank(2, rank);
    auto two = MakeLoader(sampler, /*workers=*/2);
    const std::vector<size_t> batch = *two->begin();
    visited.insert(visited.end(), batch.begin(), batch.end());
    state = sampler.State(static_cast<int64_t>(batch.size()));
  }
  for (int64_t rank = 0; rank < 3; ++rank) {
    DistributedSampler sampler = epoch.Rank(3, rank);
    auto three = MakeLoader(sampler, /*workers=*/2);
    ASSERT_TRUE(sampler.Restore(state).ok());
    for (const std::vector<size_t>& batch : *three) visited.insert(visited.end(), batch.begin(), batch.end());
  }
  ASSERT_EQ(visited.size(), 103);  // 16 and then 87 = 3 x 29: nothing is repeated
  std::sort(visited.begin(), visited.end());
  EXPECT_EQ(visited, UpTo(103));
}

TEST(Continuation, OfBatchesMayHaveAnotherBatchSize) {
  DistributedBatchSamplerOptions options;
  options.sampler.shuffle = false;
  options.batch_size = 4;
  DistributedBatchSampler before = DistributedBatchSampler::Create(20, options).value();
  const SamplerState state = before.State(2);
  options.sampler.num_replicas = 2;
  options.sampler.rank = 1;
  options.batch_size = 5;
  DistributedBatchSampler after = DistributedBatchSampler::Create(20, options).value();
  ASSERT_TRUE(after.Restore(state).ok());
  EXPECT_EQ(after.num_remaining(), 2);
  std::vector<std::vector<size_t>> batches;
  for (const std::vector<size_t>& batch : after) batches.push_back(batch);
  EXPECT_THAT(batches, ElementsAre(ElementsAre(9, 11, 13, 15, 17), ElementsAre(19)));
}

}  // namespace
}  // namespace lockstep::sampler
