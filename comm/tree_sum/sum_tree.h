// The order in which numbers are added so that their sum does not depend on which rank holds which of them.

#ifndef LOCKSTEP_COMM_TREE_SUM_SUM_TREE_H_
#define LOCKSTEP_COMM_TREE_SUM_SUM_TREE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::comm {

// A node of a SumTree: the sum of the leaves [begin, end).
struct PartialSum {
  int begin = 0;
  int end = 0;

  friend bool operator==(PartialSum a, PartialSum b) { return a.begin == b.begin && a.end == b.end; }
};

// A binary tree over `leaves` numbers, determined by their count alone. A node of n > 1 leaves is the sum of its first
// p leaves and the others, where p is the largest power of two less than n:
//
//   6 leaves: ((0 + 1) + (2 + 3)) + (4 + 5)      3 leaves: (0 + 1) + 2
//
// Whoever has the leaves, or sums of them that are nodes of the tree, gets the bits of this one order by putting them
// on a stack from left to right, and adding the two on top as often as Push() says. A stack that begins with leaf 0 has
// at most 1 + log2(leaves) elements.
class SumTree {
 public:
  explicit SumTree(int leaves) : leaves_(leaves) {}

  int leaves() const { return leaves_; }

  // Puts `next`, a node that begins where the top of the stack ends, on the stack. Adds the two on top as long as the
  // tree has a node for their sum. Returns the number of additions.
  int Push(std::vector<PartialSum>& stack, PartialSum next) const;

  // The sums that remain on the stack when the leaves [begin, end) were put on an empty one: the largest nodes within.
  // At most 2 * log2(leaves) of them.
  std::vector<PartialSum> Cover(int begin, int end) const;

 private:
  bool Adds(PartialSum left, PartialSum right) const;

  int leaves_;
};

// How the partial sums of all ranks become one. The same on every rank.
struct TreeSumOrder {
  std::vector<int> counts;    // of each rank: how many partial sums it has
  std::vector<uint8_t> adds;  // of each partial sum, in rank order: once it is on the stack, how many additions follow
  int divisor = 1;            // of the sum
  // If set, rank r gets only elements of the sum from slices[r] on, as many as its output has. The last entry is the
  // number of elements of a partial sum.
  std::vector<int64_t> slices = {};
};

// A node that the ranks of one host have all leaves of, one leaf a rank. `order.counts` are of the host's ranks.
struct HostSum {
  PartialSum node;
  TreeSumOrder order;
};

// Returns the largest nodes within `node` that the ranks of one host have all leaves of, in order. Rank r has leaf
// first_leaf + r. `ranks` are the host's, ascending.
std::vector<HostSum> SumsOfHost(const SumTree& tree, PartialSum node, int first_leaf, const std::vector<int>& ranks);

// The order in which ranks that have the leaves [bounds[r], bounds[r + 1]) add their Cover()s.
TreeSumOrder OrderOf(const SumTree& tree, const std::vector<int>& bounds);

// The bounds of even blocks: rank r of `ranks` has the leaves from leaves * r / ranks on.
std::vector<int> EvenBounds(int leaves, int ranks);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_TREE_SUM_SUM_TREE_H_
