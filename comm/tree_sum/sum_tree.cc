#include "lockstep/comm/tree_sum/sum_tree.h"

#include <utility>

#include "lockstep/base/even_blocks.h"

namespace lockstep::comm {

// A left child has a power of two leaves, p, and begins at a multiple of 2 p. Its sibling has p leaves too, or is at
// the right edge and has fewer.
bool SumTree::Adds(PartialSum left, PartialSum right) const {
  const int p = left.end - left.begin, others = right.end - right.begin;
  if ((p & (p - 1)) != 0 || left.begin % (2 * p) != 0 || left.end != right.begin) return false;
  return others == p || (others < p && right.end == leaves_);
}

int SumTree::Push(std::vector<PartialSum>& stack, PartialSum next) const {
  stack.push_back(next);
  int adds = 0;
  while (stack.size() > 1 && Adds(stack[stack.size() - 2], stack.back())) {
    const int end = stack.back().end;
    stack.pop_back();
    stack.back().end = end;
    ++adds;
  }
  return adds;
}

std::vector<PartialSum> SumTree::Cover(int begin, int end) const {
  std::vector<PartialSum> stack;
  for (int leaf = begin; leaf < end; ++leaf) Push(stack, {leaf, leaf + 1});
  return stack;
}

std::vector<HostSum> SumsOfHost(const SumTree& tree, PartialSum node, int first_leaf, const std::vector<int>& ranks) {
  std::vector<PartialSum> stack;
  std::vector<HostSum> sums;
  for (size_t place = 0; place < ranks.size(); ++place) {
    const int leaf = first_leaf + ranks[place];
    if (leaf < node.begin || leaf >= node.end) continue;
    const int adds = tree.Push(stack, {leaf, leaf + 1});
    TreeSumOrder order;
    order.counts.assign(ranks.size(), 0);
    order.counts[place] = 1;
    order.adds = {static_cast<uint8_t>(adds)};
    // The sums that the leaf is added to come before it.
    for (int left = adds; left > 0; --left) {
      const TreeSumOrder before = std::move(sums.back().order);
      sums.pop_back();
      for (size_t other = 0; other < ranks.size(); ++other) order.counts[other] += before.counts[other];
      order.adds.insert(order.adds.begin(), before.adds.begin(), before.adds.end());
    }
    sums.push_back({stack.back(), std::move(order)});
  }
  return sums;
}

TreeSumOrder OrderOf(const SumTree& tree, const std::vector<int>& bounds) {
  TreeSumOrder order;
  std::vector<PartialSum> stack;
  for (size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
    const std::vector<PartialSum> sums = tree.Cover(bounds[rank], bounds[rank + 1]);
    order.counts.push_back(static_cast<int>(sums.size()));
    for (const PartialSum sum : sums) order.adds.push_back(static_cast<uint8_t>(tree.Push(stack, sum)));
  }
  return order;
}

std::vector<int> EvenBounds(int leaves, int ranks) {
  std::vector<int> bounds;
  for (int rank = 0; rank <= ranks; ++rank) bounds.push_back(static_cast<int>(BlockBegin(leaves, ranks, rank)));
  return bounds;
}

}  // namespace lockstep::comm
