// From the first gradient of a backward to the all_reduces of its buckets.

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/bucket.h"
#include "lockstep/ddp/internal/reducer.h"
#include "lockstep/ddp/internal/sparse_all_reduce.h"

namespace lockstep::ddp::internal {

void Reducer::BeginBackward() {
  if (in_backward_ || !sync_) return;
  LookForCapture();
  in_backward_ = true;
  next_bucket_ = next_delivery_ = 0;
  for (State& state : states_) state.remaining = state.expected;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { FinishBackward(); });
  if (births_) {
    births_->Begin();
    for (const Bucket& bucket : buckets_) ExpectBirths(bucket.parameters);
    Births::Activate(births_);
  }
  if (!FirstOfStaticGraph()) MarkUnused();
}

// Parameters that this backward will not reach are ready at once.
void Reducer::MarkUnused() {
  if (!NeedsSink()) return;
  std::vector<int> unused;
  const auto* const nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  for (size_t i = 0; i < states_.size(); ++i) {
    const bool is_used =
        options_.static_graph ? states_[i].expected > 0 : !nodes || nodes->count(accumulators_[i].get()) > 0;
    if (!is_used) unused.push_back(static_cast<int>(i));
    if (is_used && options_.skip_all_reduce_unused_params && DynamicUnused()) used_->Mark(static_cast<int>(i));
  }
  if (options_.skip_all_reduce_unused_params && DynamicUnused()) {
    used_->StartExchange(*group_);
    ThrowIfError(Explained(used_->WaitForAll()));
  }
  for (const int i : unused) {
    if (!states_[i].ready) MarkReady(i);
  }
}

void Reducer::OnGradient(int index, const at::Tensor& arriving) {
  const at::Tensor& gradient = parameters_[index].tensor.grad();
  // A gradient may arrive undefined, from an output that the loss does not depend on.
  if (used_ && (DynamicUnused() || !used_known_) && gradient.defined()) used_->Mark(index);
  if (!sync_) {
    if (on_end_ && !std::exchange(end_is_queued_, true))
      torch::autograd::Engine::get_default_engine().queue_callback([this] {
        end_is_queued_ = false;
        on_end_();
      });
    return;
  }
  BeginBackward();
  recorder_.GradientReady();
  State& state = states_[index];
  if (FirstOfStaticGraph()) {
    ++state.expected;
    return;
  }
  if (options_.static_graph) {
    if (state.remaining == 0) {
      ThrowIfError(absl::FailedPreconditionError(
          absl::StrCat("rank ", group_->rank(), ": parameter ", parameters_[index].name, " got ", state.expected + 1,
                       " gradients in this backward and ", state.expected, " in the first: the graph is not static")));
    }
    if (--state.remaining > 0) return;
  }
  DeliverFinished();
  arriving_ = arriving;
  MarkReady(index);
  if (MayRebuild() && ready_order_.size() < parameters_.size()) ready_order_.push_back(index);
  StartFullBuckets();
  if (index == options_.delay_until) StartDelayed();
  arriving_.reset();
}

void Reducer::MarkReady(int index) {
  State& state = states_[index];
  Bucket& bucket = buckets_[state.bucket];
  // A second time in one backward: the parameter's node ran again, as under checkpointed recomputation; or it came
  // after the delayed ones were reduced.
  if (state.ready || bucket.work || bucket.future) {
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
        "rank ", group_->rank(), ": parameter ", parameters_[index].name,
        bucket.delayed ? " got its gradient after that of the parameter that its all_reduce follows"
                       : " got its gradient twice in one backward: recomputation needs Options::static_graph")));
  }
  state.ready = true;
  if (bucket.sparse) {
    TakeSparse(index);
  } else {
    CopyIntoSlot(index, /*used=*/!NeedsSink() || used_->Used(index));
  }
  if (--bucket.pending == 0) recorder_.BucketReady(bucket.index);
}

void Reducer::StartFullBuckets() {
  for (; next_bucket_ < ordered_ && buckets_[next_bucket_].pending == 0; ++next_bucket_) Start(buckets_[next_bucket_]);
}

void Reducer::StartDelayed() {
  Bucket& bucket = buckets_.back();
  if (!bucket.delayed || bucket.work || bucket.future) return;
  for (const int i : bucket.parameters) {
    if (states_[i].ready) continue;
    last_backward_.Update(absl::FailedPreconditionError(
        absl::StrCat("rank ", group_->rank(), ": parameter ", parameters_[i].name, " had no gradient when that of ",
                     parameters_[options_.delay_until].name, ", which its all_reduce follows, was computed")));
    MarkReady(i);
  }
  Start(bucket);
}

bool Reducer::Skipped(const Bucket& bucket) const {
  if (!options_.skip_all_reduce_unused_params || !NeedsSink()) return false;
  if (options_.static_graph && !used_known_) return false;
  return std::none_of(bucket.parameters.begin(), bucket.parameters.end(), [this](int i) { return used_->Used(i); });
}

// Whether the bucket's gradients are divided by its all_reduce and not as they come in. Only by powers of two, where
// PyTorch's two ways to divide, by the number and by its reciprocal, give the same bits.
bool Reducer::DividedInSum(const Bucket& bucket) const {
  int exponent = 0;
  return bucket.multiplied_in_sum && !hook_ && std::frexp(Divisor(), &exponent) == 0.5;
}

void Reducer::Start(Bucket& bucket) {
  if (options_.non_finite != NonFinite::kIgnore) AddNonFinite(bucket, bucket.buffer, not_finite_);
  ReplaceGradients(bucket);
  Launch(bucket);
}

void Reducer::Launch(Bucket& bucket) {
  if (Skipped(bucket)) {
    bucket.future.emplace(bucket.buffer);
    return;
  }
  recorder_.BucketStarted(bucket.index);
  if (bucket.sparse) {
    LaunchSparse(bucket);
  } else if (hook_) {
    GradBucket for_hook = bucket.for_hook;
    bucket.future = hook_(for_hook);
  } else {
    bucket.work = bucket.multiplied_in_sum
                      ? group_->AllReducePremulSumAsync(bucket.buffer, DividedInSum(bucket) ? 1.0 / Divisor() : 1.0)
                      : group_->AllReduceAsync(bucket.buffer);
  }
}

// Gloo sums sparse tensors itself: in a group with Python ranks these call that too, at this place in the order.
// Another backend's refusal sends nothing.
void Reducer::LaunchSparse(Bucket& bucket) {
  if (backend_sums_sparse_) {
    comm::Work work = group_->AllReduceAsync(bucket.buffer);
    backend_sums_sparse_ = !work.IsCompleted() || !absl::IsUnimplemented(work.Wait());
    if (backend_sums_sparse_) {
      bucket.work = std::move(work);
      return;
    }
  }
  bucket.future = Future([this, sum = bucket.buffer] { return SparseAllReduce(*group_, sum); });
}

// Buckets whose all_reduce is over while backward goes on. Not those that the gradient at hand has just filled: the
// engine still refers to that one.
void Reducer::DeliverFinished() {
  // Which parameters any rank used, and whether all is finite, is known at the end; of what is captured nothing is.
  if (NeedsSink() || captured_ || options_.non_finite != NonFinite::kIgnore) return;
  for (; next_delivery_ < next_bucket_; ++next_delivery_) {
    Bucket& bucket = buckets_[next_delivery_];
    if (!bucket.work || !bucket.work->IsCompleted()) return;
    const absl::StatusOr<at::Tensor> result = Result(bucket);
    ThrowIfError(Explained(result.status()));
    Deliver(bucket, *result);
  }
}

}  // namespace lockstep::ddp::internal
