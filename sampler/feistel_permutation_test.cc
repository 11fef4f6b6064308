#include "lockstep/sampler/feistel_permutation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::sampler {
namespace {

constexpr int64_t kLargest = int64_t{1} << 62;

std::vector<int64_t> Order(int64_t size, int64_t seed, int64_t epoch) {
  std::vector<int64_t> order(size);
  FeistelPermutation(size, seed, epoch).Fill(0, 1, size, order.data());
  return order;
}

// Returns whether draws that should fall into every class equally often did: false where chance leads to as uneven
// counts less than once in a million times, by Wilson and Hilferty's approximation (1931). Keys are the same in each
// run.
bool AreEquallyLikely(const std::vector<int64_t>& counts) {
  double draws = 0, chi_square = 0;
  for (const int64_t count : counts) draws += count;
  const double expected = draws / counts.size(), freedom = counts.size() - 1.0;
  EXPECT_GE(expected, 5);
  for (const int64_t count : counts) chi_square += (count - expected) * (count - expected) / expected;
  const double variance = 2 / (9 * freedom);
  return (std::cbrt(chi_square / freedom) - (1 - variance)) / std::sqrt(variance) < 4.753;
}

// The place of an order in the list of all.
int64_t RankOf(const std::vector<int64_t>& order) {
  int64_t rank = 0;
  for (auto i = order.begin(); i != order.end(); ++i) {
    rank = rank * (order.end() - i) + std::count_if(i, order.end(), [&](int64_t later) { return later < *i; });
  }
  return rank;
}

bool IsOdd(std::vector<int64_t> order) {
  bool odd = false;
  for (int64_t i = 0; i < order.size(); ++i) {
    for (; order[i] != i; odd = !odd) std::swap(order[i], order[order[i]]);
  }
  return odd;
}

TEST(FeistelPermutation, HasEachIndexOnce) {
  std::vector<int64_t> sizes = {4095, 4096, 4097, 65537, 1000003};
  for (int64_t size = 1; size <= 1000; ++size) sizes.push_back(size);
  for (const int64_t size : sizes) {
    std::vector<int64_t> order = Order(size, 1, size);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order[i], i) << size;
  }
}

TEST(FeistelPermutation, StaysInRangeAndApartAtTheLargestSizes) {
  for (const int64_t size : {kLargest, kLargest - 1, kLargest - 12345, (kLargest >> 1) + 1, (int64_t{1} << 53) + 1}) {
    const FeistelPermutation permutation(size, 3, 4);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 1000; ++i) {
      for (const int64_t position : {i, size / 2 + i, size - 1 - i}) {
        const int64_t index = permutation(position);
        ASSERT_TRUE(0 <= index && index < size);
        EXPECT_TRUE(seen.insert(index).second);
      }
    }
  }
}

TEST(FeistelPermutation, KeepsItsOrdersForEver) {
  std::ifstream file("sampler/peer/feistel_permutation_golden.txt");
  int lines = 0;
  for (int64_t size, seed, epoch, position, index; file >> size >> seed >> epoch >> position >> index; ++lines) {
    EXPECT_EQ(FeistelPermutation(size, seed, epoch)(position), index) << size << ' ' << seed << ' ' << epoch;
  }
  EXPECT_EQ(lines, 190);
}

TEST(FeistelPermutation, FillsAtAnyStride) {
  const FeistelPermutation permutation(100000, 1, 2);
  for (const auto [first, stride, count] : std::vector<std::array<int64_t, 3>>{
           {0, 1, 0}, {5, 1, 1}, {3, 8, 15}, {3, 8, 16}, {99, 7, 61}, {0, 33333, 4}, {99999, 1 << 20, 1}}) {
    std::vector<int64_t> filled(count + 1, -1);
    permutation.Fill(first, stride, count, filled.data());
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(filled[i], permutation(first + i * stride));
    EXPECT_EQ(filled[count], -1);
  }
}

TEST(FeistelPermutation, FitsInAKibibyte) { EXPECT_LT(sizeof(FeistelPermutation), 1024); }

TEST(FeistelPermutation, SeedsAndEpochsAllGiveOtherOrders) {
  std::set<std::vector<int64_t>> orders;
  for (int64_t seed = -20; seed < 20; ++seed) {
    for (int64_t epoch = 0; epoch < 40; ++epoch) orders.insert(Order(50, seed, epoch));
  }
  EXPECT_EQ(orders.size(), 1600);
}

TEST(FeistelPermutation, AllOrdersOfFewAreEquallyLikely) {
  for (int64_t size = 2, orders = 2; size <= 6; ++size, orders *= size) {
    std::vector<int64_t> counts(orders);
    for (int64_t key = 0; key < 100000; ++key) ++counts[RankOf(Order(size, key / 8, key % 8))];
    EXPECT_TRUE(AreEquallyLikely(counts)) << size;
  }
}

TEST(FeistelPermutation, EveryIndexIsEquallyLikelyEverywhere) {
  for (const int64_t size : {8, 9, 12, 20, 33, 50, 260}) {
    std::vector<int64_t> counts(size * size);
    for (int64_t key = 0; key < 5000; ++key) {
      const std::vector<int64_t> order = Order(size, key, 0);
      for (int64_t i = 0; i < size; ++i) ++counts[i * size + order[i]];
    }
    EXPECT_TRUE(AreEquallyLikely(counts)) << size;
  }
}

TEST(FeistelPermutation, AllPairsOfNeighboursAreEquallyLikely) {
  for (const int64_t size : {8, 16, 33, 100, 260}) {
    std::vector<int64_t> counts(size * (size - 1));
    for (int64_t key = 0; key < 350000; ++key) {
      const FeistelPermutation permutation(size, key, 0);
      const int64_t index = permutation(key % (size - 1)), next = permutation(key % (size - 1) + 1);
      ++counts[index * (size - 1) + next - (next > index)];
    }
    EXPECT_TRUE(AreEquallyLikely(counts)) << size;
  }
}

TEST(FeistelPermutation, OddAndEvenOrdersAreEquallyLikely) {
  for (const int64_t size : {8, 9, 10, 25, 100, 256, 961, 1089}) {
    std::vector<int64_t> counts(2);
    for (int64_t key = 0; key < 3000; ++key) ++counts[IsOdd(Order(size, key, 0))];
    EXPECT_TRUE(AreEquallyLikely(counts)) << size;
  }
}

// Seeds and epochs that follow each other.
constexpr std::array<std::array<int64_t, 2>, 2> kSteps = {{{1, 0}, {0, 1}}};

TEST(FeistelPermutation, AnIndexTellsNothingOfTheNextEpochOrSeed) {
  for (const auto [seeds, epochs] : kSteps) {
    for (const int64_t size : {2, 5, 12, 260}) {
      std::vector<int64_t> counts(size * size);
      for (int64_t key = 0; key < 350000; ++key) {
        const int64_t index = FeistelPermutation(size, key * seeds, key * epochs)(key % size);
        ++counts[index * size + FeistelPermutation(size, key * seeds + seeds, key * epochs + epochs)(key % size)];
      }
      EXPECT_TRUE(AreEquallyLikely(counts)) << size << " seeds " << seeds;
    }
  }
}

// The number of positions where independent orders have the same index is distributed by Poisson with mean 1, to within
// 1 / size!, and so are the probabilities of 0, 0 or 1, and 2 or less.
TEST(FeistelPermutation, TheNextEpochOrSeedAgreesAsOftenAsChance) {
  constexpr int64_t kKeys = 20000;
  for (const auto [seeds, epochs] : kSteps) {
    std::array<int64_t, 3> at_most = {};
    std::vector<int64_t> previous = Order(300, 0, 0);
    for (int64_t key = 1; key <= kKeys; ++key) {
      const std::vector<int64_t> order = Order(300, key * seeds, key * epochs);
      int64_t same = 0;
      for (int64_t i = 0; i < order.size(); ++i) same += order[i] == previous[i];
      for (int64_t i = same; i < at_most.size(); ++i) ++at_most[i];
      previous = order;
    }
    for (const auto& [count, times_e] : {std::pair(at_most[0], 1.0), {at_most[1], 2.0}, {at_most[2], 2.5}}) {
      const double probability = times_e / std::exp(1);
      EXPECT_NEAR(count, kKeys * probability, 4.9 * std::sqrt(kKeys * probability * (1 - probability)));
    }
  }
}

}  // namespace
}  // namespace lockstep::sampler
