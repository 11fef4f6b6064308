// The gradients of a rank's virtual ranks, added in the order of a tree.

#ifndef LOCKSTEP_DDP_INTERNAL_PARTIAL_GRADIENTS_H_
#define LOCKSTEP_DDP_INTERNAL_PARTIAL_GRADIENTS_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/tree_sum/tree_sum.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/internal/gradient_buckets.h"
#include "lockstep/ddp/internal/known_hook.h"

namespace lockstep::ddp::internal {

// Each virtual rank's gradients are a leaf of a comm::SumTree. A rank adds its own leaves as far as the tree does, and
// keeps what cannot be added yet in copies of the buckets. The gradients of its last virtual rank come by way of the
// buckets themselves, one by one:
//
//   partial.Build(buckets);                            // when the buckets were built
//   partial.BeginStep();
//   partial.TakeLeaf(parameters, buckets, divisor);    // after the backward of each virtual rank but the last
//   PartialGradients::Sum sum = partial.Start(bucket, divisor);   // for each full bucket of the last one
//
// The last one that has inputs need not be the rank's last: the leaves behind it count as zero. Sparse gradients are
// kept apart until the sum, which adds them in the order of the virtual ranks.
//
// Errors are thrown as StatusError.
class PartialGradients {
 public:
  // A sum over all virtual ranks under way.
  struct Sum {
    comm::PendingTreeSum pending;
    at::Tensor result;  // the bucket's buffer, or of the dtype in which a hook averages
  };

  // `virtual_ranks` is at least the number of ranks. `group` is borrowed.
  PartialGradients(comm::ProcessGroup* group, int virtual_ranks);

  int virtual_ranks() const { return virtual_ranks_; }

  // This rank's virtual ranks: [begin(), end()).
  int begin() const { return begin_; }
  int end() const { return end_; }

  // The virtual rank whose gradients come next.
  int next() const { return stack_.empty() ? begin_ : stack_.back().end; }

  // Dense gradients are averaged as a hook does. Not within a step.
  void SetAverage(const HookAverage& average);
  bool has_average() const { return average_.has_value(); }

  // Releases the copies of previous buckets. Not within a step.
  void Build(const GradientBuckets& buckets);

  void BeginStep();

  // Adds the gradients of `parameters`, which are next()'s. A parameter without a gradient counts as zero. `divisor`:
  // see Start().
  void TakeLeaf(const std::vector<ReducedParameter>& parameters, const GradientBuckets& buckets, double divisor);

  // Adds zeros for next(), which has no inputs.
  void TakeEmptyLeaf(const GradientBuckets& buckets);

  // Starts the sum of a dense bucket over all virtual ranks, divided by `divisor`. Its buffer has next()'s gradients.
  // With a hook's average the divisor is the number of virtual ranks. Every rank must call it for the same buckets in
  // the same order.
  Sum Start(const Bucket& bucket, int divisor);

  // Starts the sum of a sparse bucket. Its leaves have been divided.
  Future StartSparse(const Bucket& bucket) const;

 private:
  // A copy of one bucket.
  struct Partial {
    at::Tensor buffer;
    std::vector<at::Tensor> slots;
  };
  // The gradient of the parameter that has this place in the bucket, in the dtype of the sum, or undefined.
  using Leaf = std::function<at::Tensor(const Bucket& bucket, size_t place)>;

  c10::ScalarType SumDtype(const Bucket& bucket) const;
  at::Tensor Allocate(const at::Tensor& like, c10::ScalarType dtype) const;
  Partial& PartialOf(const Bucket& bucket, size_t depth);
  at::Tensor LastLeaf(const Bucket& bucket);
  void Take(const GradientBuckets& buckets, const Leaf& leaf);
  void AddLeaf(const Bucket& bucket, size_t depth, int adds, const Leaf& leaf);

  comm::ProcessGroup* const group_;
  const int virtual_ranks_;
  const comm::SumTree tree_;
  const std::vector<int> bounds_;
  const int begin_, end_;
  const comm::TreeSum sum_;
  std::optional<HookAverage> average_;
  std::vector<comm::PartialSum> stack_;          // of this step
  std::vector<std::vector<Partial>> partials_;   // of each bucket, by their place on the stack; kept for the next step
  std::vector<at::Tensor> cast_;                 // of each bucket: the last leaf in the hook's dtype, if that differs
  std::vector<std::vector<at::Tensor>> sparse_;  // of each bucket: this step's leaves if they are sparse
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_PARTIAL_GRADIENTS_H_
