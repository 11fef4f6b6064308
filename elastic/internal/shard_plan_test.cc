#include "lockstep/elastic/internal/shard_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::elastic::internal {
namespace {

// The parameters of ResNet-like networks: a few large ones and many small ones.
std::vector<int64_t> Sizes(int number, std::mt19937& random) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < number; ++i) sizes.push_back(random() % 4 == 0 ? 1 + random() % 5000 : 1 + random() % 50);
  return sizes;
}

std::vector<std::vector<int>> AllHaveAll(size_t parameters, int ranks) {
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return std::vector<std::vector<int>>(parameters, all);
}

std::vector<int> OneNode(int ranks) { return std::vector<int>(ranks, 0); }

// Returns which shards the ranks have when they keep `plan`. Rank r becomes rank places[r], or has died if that is -1.
std::vector<std::vector<int>> HaveAfter(const std::vector<Keepers>& plan, const std::vector<int>& places) {
  std::vector<std::vector<int>> have;
  for (const Keepers& keepers : plan) {
    std::set<int> left;
    for (const int rank : {keepers.owner, keepers.second}) {
      if (places[rank] >= 0) left.insert(places[rank]);
    }
    have.emplace_back(left.begin(), left.end());
  }
  return have;
}

// A rank has `shares` equal shares at most.
void ExpectGood(const std::vector<Keepers>& plan, const std::vector<int64_t>& sizes, int ranks, int64_t shares = 1) {
  std::vector<int64_t> kept(ranks), owned(ranks);
  for (size_t p = 0; p < plan.size(); ++p) {
    ASSERT_TRUE(plan[p].owner >= 0 && plan[p].owner < ranks && plan[p].second >= 0 && plan[p].second < ranks);
    EXPECT_EQ(plan[p].owner == plan[p].second, ranks == 1);
    owned[plan[p].owner] += sizes[p];
    kept[plan[p].owner] += sizes[p];
    if (ranks > 1) kept[plan[p].second] += sizes[p];
  }
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const int64_t largest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_LE(kept[rank], shares * (2 * all + ranks - 1) / ranks + largest) << rank;
}

// The elements that ranks must get to keep `plan`.
int64_t Moved(const std::vector<Keepers>& plan, const std::vector<std::vector<int>>& have,
              const std::vector<int64_t>& sizes) {
  int64_t moved = 0;
  for (size_t p = 0; p < plan.size(); ++p) {
    for (const int rank : std::set<int>{plan[p].owner, plan[p].second}) {
      if (std::find(have[p].begin(), have[p].end(), rank) == have[p].end()) moved += sizes[p];
    }
  }
  return moved;
}

TEST(PlanShards, DividesEqualParametersEqually) {
  const std::vector<int64_t> sizes(8, 10);
  std::vector<int> kept(4), owned(4);
  for (const Keepers& keepers : PlanShards(sizes, AllHaveAll(8, 4), OneNode(4))) {
    ++owned[keepers.owner];
    ++kept[keepers.owner];
    ++kept[keepers.second];
  }
  EXPECT_THAT(kept, ::testing::Each(4));
  EXPECT_THAT(owned, ::testing::Each(2));
}

TEST(PlanShards, WithOneRankItKeepsEverything) {
  for (const Keepers& keepers : PlanShards({5, 1, 3}, AllHaveAll(3, 1), OneNode(1))) {
    EXPECT_EQ(keepers.owner, 0);
    EXPECT_EQ(keepers.second, 0);
  }
}

TEST(PlanShards, OfNoParameterAndOfEmptyOnes) {
  EXPECT_TRUE(PlanShards({}, {}, OneNode(3)).empty());
  ExpectGood(PlanShards({0, 0}, AllHaveAll(2, 3), OneNode(3)), {0, 0}, 3);
}

// Ranks die and come one at a time, thousands of times.
TEST(PlanShards, StaysGoodAndMovesLittle) {
  for (int seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const std::vector<int64_t> sizes = Sizes(1 + static_cast<int>(random() % 100), random);
    const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
    int ranks = 1 + static_cast<int>(random() % 8);
    std::vector<Keepers> plan = PlanShards(sizes, AllHaveAll(sizes.size(), ranks), OneNode(ranks));
    ExpectGood(plan, sizes, ranks);
    for (int change = 0; change < 50; ++change) {
      std::vector<int> places(ranks);
      std::iota(places.begin(), places.end(), 0);
      if (ranks > 1 && random() % 2 == 0) {
        const int dead = static_cast<int>(random() % ranks--);
        places[dead] = -1;
        for (size_t rank = dead + 1; rank < places.size(); ++rank) --places[rank];
      } else {
        ++ranks;
      }
      const auto have = HaveAfter(plan, places);
      plan = PlanShards(sizes, have, OneNode(ranks));
      ExpectGood(plan, sizes, ranks);
      // The share of the rank that died or came, and what does not fit elsewhere since parameters are not divided.
      const int64_t share = ranks == 1 ? 0 : 2 * all / std::max(ranks - 1, 2);
      EXPECT_LE(Moved(plan, have, sizes), share + ranks * largest) << "seed " << seed << ", change " << change;
    }
  }
}

// So a node may be drained or lost.
TEST(PlanShards, HasTheKeepersOnTwoNodes) {
  std::mt19937 random(3);
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{0, 1},
                                                                     {0, 0, 1, 1},
                                                                     {0, 1, 2},
                                                                     {0, 0, 1, 1, 2},
                                                                     {0, 0, 1, 1, 2, 2},
                                                                     // More than half of the ranks are on one node.
                                                                     {0, 0, 1},
                                                                     {0, 1, 1, 1},
                                                                     {0, 0, 0, 1, 2},
                                                                     {0, 0, 0, 0, 0, 1, 1}}) {
    const auto ranks = static_cast<int>(nodes.size());
    const bool has_half = 2 * std::count(nodes.begin(), nodes.end(), nodes[ranks / 2]) > ranks;
    const std::vector<int64_t> sizes = Sizes(100, random);
    // Rank 0 alone has the shards, or all ranks do.
    for (const auto& have : {std::vector<std::vector<int>>(sizes.size(), {0}), AllHaveAll(sizes.size(), ranks)}) {
      const std::vector<Keepers> plan = PlanShards(sizes, have, nodes);
      ExpectGood(plan, sizes, ranks, has_half ? 2 : 1);
      for (const Keepers& keepers : plan) EXPECT_NE(nodes[keepers.owner], nodes[keepers.second]);
    }
  }
}

// A rank that is alone on its node would keep everything.
TEST(PlanShards, PrefersTwoEqualSharesToTwoNodes) {
  const std::vector<int64_t> sizes(60, 1);
  ExpectGood(PlanShards(sizes, AllHaveAll(60, 6), {0, 0, 0, 0, 0, 1}), sizes, 6, /*shares=*/2);
}

// So that no rank waits for another one's answer.
TEST(PlanShards, TakesNoLongerThanAStepFor256Ranks) {
  std::mt19937 random(1);
  const std::vector<int64_t> sizes = Sizes(2000, random);
  ExpectGood(PlanShards(sizes, AllHaveAll(sizes.size(), 256), OneNode(256)), sizes, 256);
}

}  // namespace
}  // namespace lockstep::elastic::internal
