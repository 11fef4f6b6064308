// The gradients of a rank's virtual ranks, added in the order of a tree.

#ifndef LOCKSTEP_DDP_INTERNAL_PARTIAL_GRADIENTS_H_
#define LOCKSTEP_DDP_INTERNAL_PARTIAL_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/tree_sum/tree_sum.h"
#include "lockstep/ddp/internal/gradient_buckets.h"

namespace lockstep::ddp::internal {

// Each virtual rank's gradients are a leaf of a comm::SumTree. A rank adds its own leaves as far as the tree does, and
// keeps what cannot be added yet in copies of the buckets. The gradients of its last virtual rank come by way of the
// buckets themselves, one by one:
//
//   partial.Build(buckets);                            // when the buckets were built
//   partial.BeginStep();
//   partial.TakeLeaf(buckets);                         // after the backward of each virtual rank but the last
//   comm::PendingTreeSum sum = partial.Start(bucket);  // for each full bucket of the last one
//
// Errors are thrown as StatusError.
class PartialGradients {
 public:
  // `virtual_ranks` is at least the number of ranks. `group` is borrowed.
  PartialGradients(comm::ProcessGroup* group, int virtual_ranks);

  // This rank's virtual ranks: [begin(), end()).
  int begin() const { return begin_; }
  int end() const { return end_; }

  // Releases the copies of previous buckets. Not within a step.
  void Build(const GradientBuckets& buckets);

  void BeginStep() { stack_.clear(); }

  // Adds the gradients of `parameters`, the next virtual rank's. A parameter without a gradient counts as zero.
  void TakeLeaf(const std::vector<ReducedParameter>& parameters, const GradientBuckets& buckets);

  // Starts the sum over all virtual ranks, divided by their number, into the bucket's buffer, which has the gradients of
  // this rank's last virtual rank. Every rank must call it for the same buckets in the same order.
  comm::PendingTreeSum Start(const Bucket& bucket);

 private:
  // A copy of one bucket.
  struct Partial {
    at::Tensor buffer;
    std::vector<at::Tensor> slots;
  };

  Partial& PartialOf(const Bucket& bucket, size_t depth);

  comm::ProcessGroup* const group_;
  const int virtual_ranks_;
  const comm::SumTree tree_;
  const std::vector<int> bounds_;
  const int begin_, end_;
  const comm::TreeSum sum_;
  std::vector<comm::PartialSum> stack_;         // of this step
  std::vector<std::vector<Partial>> partials_;  // of each bucket, by their place on the stack; kept for the next step
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_PARTIAL_GRADIENTS_H_
