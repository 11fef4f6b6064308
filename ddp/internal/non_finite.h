// Finds gradients that contain a NaN or an infinity, and the rank from which they come.

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

namespace lockstep::ddp::internal {

// Checks this rank's gradients before they are reduced, and the averages afterwards. Does nothing unless looks().
class NonFiniteCheck {
 public:
  // All pointers are borrowed.
  NonFiniteCheck(NonFinite reaction, comm::ProcessGroup* group, const std::vector<ReducedParameter>* parameters,
                 GradientBuckets* buckets, StepRecorder* recorder);

  bool looks() const { return reaction_ != NonFinite::kIgnore; }

  // Call it for each bucket before it is reduced.
  void LookAtOwn(int bucket);

  // Call it on all ranks with the results of the buckets from `first` on. All ranks have the same results, so all find
  // the same. If a result is not finite, the ranks exchange whose gradient caused it. Records that, and returns
  // DataLoss for NonFinite::kThrow.
  absl::Status LookAtResults(int first, const std::vector<at::Tensor>& results);

  // The backward is over: forgets this rank's gradients.
  void End() { own_.clear(); }

 private:
  std::vector<std::string> Names(const std::vector<int>& parameters) const;

  const NonFinite reaction_;
  comm::ProcessGroup& group_;
  const std::vector<ReducedParameter>& parameters_;
  GradientBuckets& buckets_;
  StepRecorder& recorder_;
  std::vector<int> own_;  // parameters whose own gradient is not finite
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_NON_FINITE_H_
