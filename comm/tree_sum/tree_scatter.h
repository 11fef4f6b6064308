// A sum over all ranks of which each rank gets a slice, with bits that do not depend on which rank has which addend.

#ifndef LOCKSTEP_COMM_TREE_SUM_TREE_SCATTER_H_
#define LOCKSTEP_COMM_TREE_SUM_TREE_SCATTER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/tree_sum/sum_tree.h"

namespace lockstep::comm {

// Adds up the leaves of a SumTree, one tensor each, in rounds: in round j rank r of W brings leaf j W + r. In the last
// round there may be fewer leaves than ranks. Each rank keeps its slice of the elements. Between rounds it holds at most
// 1 + log2(leaves) slices, and no other rank's.
//
// Over shm a rank adds up its slice of all leaves where they are. Over hierarchical, if each host has as many ranks, the
// ranks of a host first add up what they have of the tree, and only these sums go to other hosts: one, if the ranks of
// each host are numbered one after the other and their number is a power of two. Otherwise each rank sends each other
// rank a slice of its leaf. While a round is under way, a rank has one slice for each sum or leaf that it receives.
//
//   TreeScatter scatter(group, /*leaves=*/8);
//   TreeScatter::Sum sum(result, bounds);                        // `result` has bounds[rank + 1] - bounds[rank] elements
//   for (int round = 0; round < scatter.rounds(); ++round) {
//     LOCKSTEP_RETURN_IF_ERROR(scatter.Start(round, leaf, &sum));   // leaf: of scatter.LeafOf(round, rank)
//     LOCKSTEP_RETURN_IF_ERROR(scatter.Wait(&sum));
//   }
//
// After the last round `result` is this rank's slice of the tree's sum, divided by the number of leaves: the bits of
// TreeSum. Every rank must start the same sums in the same order. Between Start() and Wait() of a sum, others may be
// started.
class TreeScatter {
 public:
  // One tensor's sum. `bounds` are the same on every rank: rank r's slice is [bounds[r], bounds[r + 1]) of the leaves'
  // elements.
  class Sum {
   public:
    Sum(at::Tensor result, std::vector<int64_t> bounds)
        : result_(std::move(result)), bounds_(std::make_shared<const std::vector<int64_t>>(std::move(bounds))) {}

    const at::Tensor& result() const { return result_; }

   private:
    friend class TreeScatter;
    // The sums of this round's nodes, under way.
    struct Pending {
      PartialSum node;
      at::Tensor slice;
      std::vector<PartialSum> addends;  // in the order in which they are received; empty if the backend adds
      at::Tensor received;              // the slices of `addends`
      std::optional<Work> work;
    };

    at::Tensor result_;
    std::shared_ptr<const std::vector<int64_t>> bounds_;
    std::vector<PartialSum> nodes_;
    std::vector<at::Tensor> slices_;  // of `nodes_`; the first is `result_`
    std::vector<Pending> pending_;
    bool divided_ = false;  // all leaves are in it
  };

  // `group` is borrowed. The leaves are on `device`. Requires: leaves >= group->size().
  TreeScatter(ProcessGroup* group, int leaves, c10::DeviceType device = c10::DeviceType::CPU);

  int rounds() const { return static_cast<int>(rounds_.size()); }
  // Returns -1 if the rank brings none in this round.
  int LeafOf(int round, int rank) const;

  // Starts adding this round's leaves. `leaf` is this rank's: contiguous, of the result's dtype, with bounds.back()
  // elements. It must be of AllocateShared(), also on a rank that brings none. It must not change until Wait(). Returns
  // the group's errors. InvalidArgument: the leaf has another size, dtype or device.
  absl::Status Start(int round, const at::Tensor& leaf, Sum* sum) const;

  // Returns true if Wait() would not block.
  static bool IsCompleted(const Sum& sum);

  // Blocks until the round is done, at most for the group's timeout. Round 0 of a further sum may follow on the same
  // object after the last round.
  absl::Status Wait(Sum* sum) const;

 private:
  // A node of a round's leaves.
  struct Node {
    PartialSum node;
    std::shared_ptr<const std::vector<std::vector<HostSum>>> of_hosts;  // the sums that each host has of it
  };

  void StartNode(const Node& node, int round, const at::Tensor& leaf, Sum* sum) const;
  Work StartExchange(int round, const at::Tensor& leaf, const Sum::Pending& pending,
                     const std::vector<int64_t>& bounds) const;
  void Push(Sum::Pending pending, Sum* sum) const;

  ProcessGroup* group_;
  SumTree tree_;
  c10::DeviceType device_;
  std::vector<std::vector<Node>> rounds_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_TREE_SUM_TREE_SCATTER_H_
