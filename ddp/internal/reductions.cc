#include "lockstep/ddp/internal/reductions.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/ddp/internal/sparse_all_reduce.h"

namespace lockstep::ddp::internal {

Reductions::Reductions(comm::ProcessGroup* group, const UsedParameters* used, StepRecorder* recorder, bool skip_unused,
                       PartialGradients* partial)
    : group_(*group), used_(*used), recorder_(*recorder), skip_unused_(skip_unused), partial_(partial) {}

void Reductions::SetBuckets(const GradientBuckets& buckets) {
  const bool shares_memory = group_.size() > 1 && comm::internal::GroupAccess::SharesMemory(group_);
  multiplies_.clear();
  for (int i = 0; i < buckets.size(); ++i) {
    const at::Tensor& buffer = buckets[i].buffer;
    multiplies_.push_back(shares_memory && !buckets[i].sparse && buffer.is_cpu() &&
                          (buffer.scalar_type() == at::kFloat || buffer.scalar_type() == at::kDouble));
  }
  under_way_.clear();
  under_way_.resize(buckets.size());
}

int Reductions::Divisor() const { return divisor_.value_or(partial_ ? partial_->virtual_ranks() : group_.size()); }

// Only powers of two: for them PyTorch's two ways to divide, by the number and by its reciprocal, give the same bits.
bool Reductions::AllReduceDivides(const Bucket& bucket) const {
  int exponent = 0;
  return multiplies_[bucket.index] && !hook_ && std::frexp(static_cast<double>(Divisor()), &exponent) == 0.5;
}

double Reductions::DivisorOnFill(const Bucket& bucket) const {
  if (bucket.sparse) return Divisor();
  if (partial_) return 1;  // the sum divides
  return hook_ || AllReduceDivides(bucket) ? 1 : Divisor();
}

void Reductions::Start(const Bucket& bucket) {
  UnderWay& under_way = under_way_[bucket.index];
  if (skip_unused_ && used_.NoneUsed(bucket.parameters)) {
    under_way.skipped = true;
    return;
  }
  recorder_.BucketStarted(bucket.index);
  if (partial_ && bucket.sparse) {
    under_way.future = partial_->StartSparse(bucket);
  } else if (partial_) {
    under_way.sum = partial_->Start(bucket, Divisor());
  } else if (bucket.sparse) {
    StartSparse(bucket);
  } else if (hook_) {
    GradBucket for_hook = bucket.for_hook;
    under_way.future = hook_(for_hook);
  } else if (multiplies_[bucket.index]) {
    under_way.work = comm::internal::GroupAccess::AllReducePremulSumAsync(
        group_, bucket.buffer, AllReduceDivides(bucket) ? 1.0 / Divisor() : 1.0);
  } else {
    under_way.work = group_.AllReduceAsync(bucket.buffer);
  }
}

// Gloo sums sparse tensors itself, and Python ranks in the group call that at the same place in the order. If another
// backend refuses, it has sent nothing.
void Reductions::StartSparse(const Bucket& bucket) {
  UnderWay& under_way = under_way_[bucket.index];
  if (backend_sums_sparse_) {
    comm::Work work = group_.AllReduceAsync(bucket.buffer);
    backend_sums_sparse_ = !work.IsCompleted() || !absl::IsUnimplemented(work.Wait());
    if (backend_sums_sparse_) {
      under_way.work = std::move(work);
      return;
    }
  }
  under_way.future = Future([group = &group_, sum = bucket.buffer] {
    return SparseAllReduce(*group, {sum}, comm::EvenBounds(group->size(), group->size()));
  });
}

absl::Status Reductions::Advance() {
  absl::Status status;
  for (UnderWay& under_way : under_way_) {
    if (under_way.sum) status.Update(under_way.sum->pending.Advance());
  }
  return status;
}

absl::StatusOr<at::Tensor> Reductions::Wait(const Bucket& bucket) {
  UnderWay& under_way = under_way_[bucket.index];
  if (under_way.skipped) return bucket.buffer;
  if (under_way.sum) {
    LOCKSTEP_RETURN_IF_ERROR(recorder_.WaitForBucket(bucket.index, [&] { return under_way.sum->pending.Wait(); }));
    return under_way.sum->result;
  }
  if (under_way.work) {
    LOCKSTEP_RETURN_IF_ERROR(recorder_.WaitForBucket(bucket.index, [&] { return under_way.work->Wait(); }));
    return bucket.buffer;
  }
  absl::StatusOr<at::Tensor> result = absl::UnknownError("");
  LOCKSTEP_RETURN_IF_ERROR(
      TorchStatus(absl::StrCat("rank ", group_.rank(), ": the hook's future of bucket ", bucket.index),
                  [&] { result = under_way.future->Wait(); }));
  if (result.ok() && !bucket.sparse && result->sizes() != bucket.buffer.sizes()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", group_.rank(), ": the hook's tensor for bucket ",
                                                   bucket.index, " has shape [", absl::StrJoin(result->sizes(), ", "),
                                                   "], expected [", bucket.buffer.numel(), "]"));
  }
  if (result.ok()) recorder_.BucketEnded(bucket.index);
  return result;
}

absl::Status Reductions::WaitForStarted(const GradientBuckets& buckets) {
  absl::Status status;
  for (int i = 0; i < buckets.size(); ++i) {
    if (under_way_[i].work || under_way_[i].sum || under_way_[i].future) status.Update(Wait(buckets[i]).status());
  }
  return status;
}

void Reductions::End() {
  for (UnderWay& under_way : under_way_) under_way = UnderWay();
  divisor_.reset();
}

}  // namespace lockstep::ddp::internal
