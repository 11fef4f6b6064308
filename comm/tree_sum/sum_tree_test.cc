#include "lockstep/comm/tree_sum/sum_tree.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace lockstep::comm {
namespace {

using ::testing::ElementsAre;

// The definition, top down: the sum of the leaves as text.
std::string Formula(int begin, int end) {
  if (end - begin == 1) return absl::StrCat(begin);
  int p = 1;
  while (2 * p < end - begin) p *= 2;
  return absl::StrCat("(", Formula(begin, begin + p), "+", Formula(begin + p, end), ")");
}

// A stack of sums as text.
class Stack {
 public:
  explicit Stack(int leaves) : tree_(leaves) {}

  void Push(PartialSum sum, std::string formula) {
    formulas.push_back(std::move(formula));
    for (int adds = tree_.Push(sums, sum); adds > 0; --adds) {
      const std::string right = formulas.back();
      formulas.pop_back();
      formulas.back() = absl::StrCat("(", formulas.back(), "+", right, ")");
    }
  }

  std::vector<PartialSum> sums;
  std::vector<std::string> formulas;

 private:
  const SumTree tree_;
};

TEST(SumTree, AStackOfLeavesGivesTheDefinition) {
  EXPECT_EQ(Formula(0, 6), "(((0+1)+(2+3))+(4+5))");
  for (int leaves = 1; leaves <= 70; ++leaves) {
    Stack stack(leaves);
    for (int leaf = 0; leaf < leaves; ++leaf) {
      stack.Push({leaf, leaf + 1}, absl::StrCat(leaf));
      EXPECT_LE(stack.sums.size(), 1 + std::log2(leaves));
    }
    EXPECT_THAT(stack.formulas, ElementsAre(Formula(0, leaves)));
  }
}

TEST(SumTree, TheSumOfAnyBlocksIsTheDefinition) {
  for (int leaves = 1; leaves <= 9; ++leaves) {
    // A bit of `cuts` for each place where a block may end.
    for (int cuts = 0; cuts < 1 << (leaves - 1); ++cuts) {
      std::vector<int> bounds = {0};
      for (int end = 1; end < leaves; ++end) {
        if (cuts >> (end - 1) & 1) bounds.push_back(end);
      }
      bounds.push_back(leaves);
      Stack stack(leaves);
      std::vector<int> counts;
      for (size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
        Stack block(leaves);
        for (int leaf = bounds[rank]; leaf < bounds[rank + 1]; ++leaf) {
          block.Push({leaf, leaf + 1}, absl::StrCat(leaf));
        }
        EXPECT_EQ(SumTree(leaves).Cover(bounds[rank], bounds[rank + 1]), block.sums);
        counts.push_back(static_cast<int>(block.sums.size()));
        for (size_t i = 0; i < block.sums.size(); ++i) stack.Push(block.sums[i], block.formulas[i]);
      }
      EXPECT_THAT(stack.formulas, ElementsAre(Formula(0, leaves))) << leaves << " leaves, cuts " << cuts;
      EXPECT_EQ(OrderOf(SumTree(leaves), bounds).counts, counts);
    }
  }
}

TEST(SumTree, TheOrderSaysHowManyAdditionsFollowEachSum) {
  const TreeSumOrder order = OrderOf(SumTree(8), {0, 3, 8});
  EXPECT_THAT(order.counts, ElementsAre(2, 2));
  EXPECT_THAT(order.adds, ElementsAre(0, 0, 2, 1));  // (0, 1) and 2; 3, which makes (0..3), and (4..7)
}

// The additions of a host's sum as text. Ranks have the leaves of their numbers.
std::string FormulaOf(const HostSum& sum, const std::vector<int>& ranks) {
  std::vector<std::string> stack;
  auto adds = sum.order.adds.begin();
  for (size_t place = 0; place < ranks.size(); ++place) {
    if (sum.order.counts[place] == 0) continue;
    stack.push_back(absl::StrCat(ranks[place]));
    for (int left = *adds++; left > 0; --left) {
      const std::string right = stack.back();
      stack.pop_back();
      stack.back() = absl::StrCat("(", stack.back(), "+", right, ")");
    }
  }
  EXPECT_EQ(adds, sum.order.adds.end());
  EXPECT_EQ(stack.size(), 1u);
  return stack[0];
}

TEST(SumTree, TheSumsOfHostsAreTheDefinitionWhereverTheRanksAre) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int on_second = 0; on_second < 1 << ranks; ++on_second) {
      std::vector<std::vector<int>> hosts(2);
      for (int rank = 0; rank < ranks; ++rank) hosts[on_second >> rank & 1].push_back(rank);
      std::map<int, std::pair<PartialSum, std::string>> sums;
      for (const std::vector<int>& host : hosts) {
        for (const HostSum& sum : SumsOfHost(SumTree(ranks), {0, ranks}, 0, host))
          sums[sum.node.begin] = {sum.node, FormulaOf(sum, host)};
      }
      Stack stack(ranks);
      for (const auto& [begin, sum] : sums) stack.Push(sum.first, sum.second);
      EXPECT_THAT(stack.formulas, ElementsAre(Formula(0, ranks))) << ranks << " ranks, hosts " << on_second;
    }
  }
}

TEST(SumTree, AHostAddsWhatItHasOfANode) {
  const auto nodes = [](int leaves, PartialSum node, int first_leaf, const std::vector<int>& ranks) {
    std::vector<PartialSum> of_host;
    for (const HostSum& sum : SumsOfHost(SumTree(leaves), node, first_leaf, ranks)) of_host.push_back(sum.node);
    return of_host;
  };
  EXPECT_THAT(nodes(8, {0, 8}, 0, {4, 5, 6, 7}), ElementsAre(PartialSum{4, 8}));
  EXPECT_THAT(nodes(24, {16, 24}, 16, {0, 1, 2, 3}), ElementsAre(PartialSum{16, 20}));
  EXPECT_THAT(nodes(8, {0, 8}, 0, {0, 1, 3}), ElementsAre(PartialSum{0, 2}, PartialSum{3, 4}));
  EXPECT_THAT(nodes(8, {0, 8}, 0, {1, 3, 5}), ElementsAre(PartialSum{1, 2}, PartialSum{3, 4}, PartialSum{5, 6}));
  EXPECT_THAT(nodes(6, {4, 6}, 4, {0, 1, 2, 3}), ElementsAre(PartialSum{4, 6}));
  EXPECT_THAT(nodes(6, {0, 4}, 0, {4, 5}), ElementsAre());
}

TEST(SumTree, EvenBlocksDifferByOneLeaf) {
  EXPECT_THAT(EvenBounds(8, 3), ElementsAre(0, 2, 5, 8));
  EXPECT_THAT(EvenBounds(3, 3), ElementsAre(0, 1, 2, 3));
}

TEST(SumTree, ABlockHasFewSums) {
  const SumTree tree(8);
  EXPECT_THAT(tree.Cover(0, 8), ElementsAre(PartialSum{0, 8}));
  EXPECT_THAT(tree.Cover(1, 7), ElementsAre(PartialSum{1, 2}, PartialSum{2, 4}, PartialSum{4, 6}, PartialSum{6, 7}));
  EXPECT_THAT(tree.Cover(3, 3), ElementsAre());
  const SumTree large(1000);
  for (int begin = 0; begin < 1000; begin += 7) {
    for (int end = begin + 1; end <= 1000; end += 13) EXPECT_LE(large.Cover(begin, end).size(), 18u);
  }
}

// The numbers of README.md.
TEST(SumTree, RanksThatDivideAPowerOfTwoHaveOneSumEach) {
  struct Case {
    int leaves, ranks, most, all;
  };
  for (const Case& c : {Case{16, 16, 1, 16}, Case{256, 16, 1, 16}, Case{256, 15, 5, 61}}) {
    const std::vector<int> counts = OrderOf(SumTree(c.leaves), EvenBounds(c.leaves, c.ranks)).counts;
    EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), c.most) << c.leaves << " on " << c.ranks;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), c.all) << c.leaves << " on " << c.ranks;
  }
}

}  // namespace
}  // namespace lockstep::comm
