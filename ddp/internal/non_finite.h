// Finds gradients that contain a NaN or an infinity, and the rank or virtual rank from which they come.

#ifndef LOCKSTEP_DDP_INTERNAL_NON_FINITE_H_
#define LOCKSTEP_DDP_INTERNAL_NON_FINITE_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/internal/gradient_buckets.h"
#include "lockstep/ddp/internal/step_recorder.h"
#include "lockstep/ddp/options.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp::internal {

// Checks this rank's gradients before they are reduced, and the averages afterwards. Does nothing unless looks().
class NonFiniteCheck {
 public:
  // All pointers are borrowed. `virtual_ranks`: gradients come from virtual ranks.
  NonFiniteCheck(NonFinite reaction, bool virtual_ranks, comm::ProcessGroup* group,
                 const std::vector<ReducedParameter>* parameters, GradientBuckets* buckets, StepRecorder* recorder);

  bool looks() const { return reaction_ != NonFinite::kIgnore; }

  // Looks at a bucket before it is reduced, which has the gradients of `rank`, or virtual rank.
  void LookAtBucket(int bucket, int rank);

  // Looks at the gradients of a virtual rank that does not use the buckets.
  void LookAtGradients(int virtual_rank);

  // Call it on all ranks with the results of the buckets from `first` on. All ranks have the same results, so all find
  // the same. If a result is not finite, the ranks exchange whose gradient caused it. Records that, and returns
  // DataLoss for NonFinite::kThrow.
  absl::Status LookAtResults(int first, const std::vector<at::Tensor>& results);

  // A step begins or is over: forgets this rank's gradients.
  void Forget() { own_.clear(); }

 private:
  void Add(int rank, int parameter);

  const NonFinite reaction_;
  const bool virtual_ranks_;
  comm::ProcessGroup& group_;
  const std::vector<ReducedParameter>& parameters_;
  GradientBuckets& buckets_;
  StepRecorder& recorder_;
  std::vector<NonFiniteGradient> own_;  // of this rank
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_NON_FINITE_H_
