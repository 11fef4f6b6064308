// A sum over all ranks whose bits do not depend on which rank has which of the addends.

#ifndef LOCKSTEP_COMM_TREE_SUM_TREE_SUM_H_
#define LOCKSTEP_COMM_TREE_SUM_TREE_SUM_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/tree_sum/sum_tree.h"

namespace lockstep::comm {

// A tree sum under way. Movable. Keeps its tensors alive.
class PendingTreeSum {
 public:
  // Returns whether Wait() would return at once. Always false where Wait() has to communicate.
  bool IsCompleted() const;

  // Does what is left between this rank's part of the sum and the others'. Call it for several sums before the first
  // Wait(), so that they are exchanged at the same time. Every rank must call it, or Wait(), for the same sums in the
  // same order among the group's collectives.
  absl::Status Advance();

  // Blocks until the output is the sum, at most for the group's timeout. On CUDA it makes the current stream wait.
  // Further calls return the same.
  absl::Status Wait();

 private:
  friend class TreeSum;
  struct Exchange;

  explicit PendingTreeSum(absl::Status status) : status_(std::move(status)) {}

  std::optional<Work> work_;            // of the backend's own tree sum, or of the exchange
  std::shared_ptr<Exchange> exchange_;  // null: the backend's own tree sum
  at::Tensor output_, shared_output_;   // if both are defined, the second is copied to the first
  absl::Status status_;
};

// Adds up numbers that the ranks of a group have. The numbers are the leaves of a SumTree, in which rank r has the
// leaves [bounds[r], bounds[r + 1]). Each rank first adds its own leaves as far as the tree does. The sums that remain,
// own_sums(), are its part of the collective:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const TreeSum tree_sum, TreeSum::Create(group, EvenBounds(8, group->size())));
//   std::vector<at::Tensor> sums = ...;   // one for each of tree_sum.own_sums()
//   LOCKSTEP_RETURN_IF_ERROR(tree_sum.Start(output, sums, /*divisor=*/8).Wait());
//
// The output is the same on every rank, and the same for all bounds, numbers of ranks and backends: the tree's sum,
// with each addition rounded to the dtype, and then divided. This holds for dtypes whose additions on the device give
// one result, as IEEE 754's do.
//
// Over shm each rank adds its share of the elements where they are. Other backends exchange shares (all_to_all), and
// then gather the results (all_gather).
class TreeSum {
 public:
  // `group` is borrowed. Communicates nothing. `bounds` must be the same on every rank. InvalidArgument: `bounds` does
  // not have one block for each rank of `group`, does not begin with 0, or a rank has no leaf.
  static absl::StatusOr<TreeSum> Create(ProcessGroup* group, std::vector<int> bounds);

  // The partial sums that this rank brings, in order.
  const std::vector<PartialSum>& own_sums() const { return own_; }

  // Starts the sum of all leaves divided by `divisor`. All tensors have one shape and dtype, and are dense and
  // contiguous. They must not be used until Wait(). Their contents are undefined afterwards, except for `output`, which
  // may be one of `sums`. Tensors of AllocateShared() are summed without copying. Every rank must call it, like the
  // group's collectives. Errors are returned by Wait(). InvalidArgument, and nothing is sent: a wrong number of sums,
  // another shape or dtype, integers, or a divisor below 1.
  PendingTreeSum Start(const at::Tensor& output, std::vector<at::Tensor> sums, int divisor) const;

 private:
  TreeSum(ProcessGroup* group, const SumTree& tree, const std::vector<int>& bounds);

  absl::Status Check(const at::Tensor& output, const std::vector<at::Tensor>& sums, int divisor) const;
  PendingTreeSum StartInSharedMemory(const at::Tensor& output, std::vector<at::Tensor> sums, int divisor) const;
  PendingTreeSum StartExchange(const at::Tensor& output, const std::vector<at::Tensor>& sums, int divisor) const;

  ProcessGroup* group_;
  std::vector<PartialSum> own_;
  TreeSumOrder order_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_TREE_SUM_TREE_SUM_H_
