// The reductions of buckets that are in progress.

#ifndef LOCKSTEP_DDP_INTERNAL_REDUCTIONS_H_
#define LOCKSTEP_DDP_INTERNAL_REDUCTIONS_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/internal/gradient_buckets.h"
#include "lockstep/ddp/internal/partial_gradients.h"
#include "lockstep/ddp/internal/step_recorder.h"
#include "lockstep/ddp/internal/used_parameters.h"

namespace lockstep::ddp::internal {

// Starts a bucket's all_reduce, or the communication hook in its place, and waits for the result. Decides where the
// division by the number of ranks happens: before gradients are in the bucket, in the all_reduce, or in the hook.
//
//   buckets.Fill(parameter, arriving, reductions.DivisorOnFill(buckets[b]));
//   ...                                                    // for all of the bucket's parameters
//   reductions.Start(buckets[b]);                          // on all ranks in the same order
//   absl::StatusOr<at::Tensor> average = reductions.Wait(buckets[b]);
//   ...                                                    // for all buckets
//   reductions.End();
//
// Start() passes on exceptions of the hook.
class Reductions {
 public:
  // All pointers are borrowed. `skip_unused`: a bucket without a used parameter is not reduced.
  // `partial`: the sums are over virtual ranks; null: over ranks.
  Reductions(comm::ProcessGroup* group, const UsedParameters* used, StepRecorder* recorder, bool skip_unused,
             PartialGradients* partial);

  // Call it when the buckets have been built, and not while a reduction is in progress.
  void SetBuckets(const GradientBuckets& buckets);

  // Replaces the all_reduce of dense buckets. Over virtual ranks, use PartialGradients::SetAverage().
  void SetHook(CommunicationHook hook) { hook_ = std::move(hook); }
  bool has_hook() const { return hook_ != nullptr; }

  // Gradients are divided by this instead of the number of ranks (or virtual ranks), until End().
  void SetDivisor(int divisor) { divisor_ = divisor; }
  int Divisor() const;

  // The divisor of gradients before they are in the bucket: 1 if the all_reduce or the hook divides.
  double DivisorOnFill(const Bucket& bucket) const;

  void Start(const Bucket& bucket);

  // Returns whether the bucket's all_reduce is over, so that Wait() would return at once. False for other reductions.
  bool Done(int bucket) const {
    const UnderWay& reduction = under_way_[static_cast<size_t>(bucket)];
    if (reduction.sum) return reduction.sum->pending.IsCompleted();
    return reduction.work && reduction.work->IsCompleted();
  }

  // Lets the sums over virtual ranks that have started go on at the same time. Call it before Wait() for several
  // buckets.
  absl::Status Advance();

  // The result of a bucket that has started. It may be the bucket's buffer.
  absl::StatusOr<at::Tensor> Wait(const Bucket& bucket);

  // Waits for every bucket that has started. Returns the first error.
  absl::Status WaitForStarted(const GradientBuckets& buckets);

  // The backward is over: forgets its reductions and the divisor.
  void End();

 private:
  // At most one is set; none before the bucket starts.
  struct UnderWay {
    std::optional<comm::Work> work;            // an all_reduce in place
    std::optional<PartialGradients::Sum> sum;  // over virtual ranks
    std::optional<Future> future;              // anything else
    bool skipped = false;
  };

  bool AllReduceDivides(const Bucket& bucket) const;
  void StartSparse(const Bucket& bucket);

  comm::ProcessGroup& group_;
  const UsedParameters& used_;
  StepRecorder& recorder_;
  const bool skip_unused_;
  PartialGradients* const partial_;
  CommunicationHook hook_;
  std::optional<int> divisor_;
  bool backend_sums_sparse_ = true;  // until it has refused
  std::vector<char> multiplies_;     // of each bucket: its all_reduce multiplies at no cost; the same on every rank
  std::vector<UnderWay> under_way_;  // of each bucket
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_REDUCTIONS_H_
