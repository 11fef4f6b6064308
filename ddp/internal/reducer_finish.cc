// The end of a backward: waiting, verdicts, and what a rank without inputs does instead.

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/birthplace.h"
#include "lockstep/ddp/internal/bucket.h"
#include "lockstep/ddp/internal/kernels.h"
#include "lockstep/ddp/internal/non_finite.h"
#include "lockstep/ddp/internal/reducer.h"

namespace lockstep::ddp::internal {

// What waits for the end of backward: the buckets' results, the gradients, and the verdict on parameters without one.
void Reducer::FinishBackward() {
  if (!in_backward_) return;
  if (FirstOfStaticGraph()) {
    FinishFirstOfStaticGraph();
    return;
  }
  const bool all_came = std::all_of(states_.begin(), states_.end(), [](const State& state) { return state.ready; });
  if (!all_came && !DynamicUnused()) {
    last_backward_ = NoGradientError();
    LeaveWord();
  }
  if (options_.static_graph && MayRebuild()) {
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].expected == 0) ready_order_.push_back(static_cast<int>(i));
    }
  }
  CompleteBackward();
}

void Reducer::FinishFirstOfStaticGraph() {
  // A rank that had no inputs when the others learnt the graph (see ShadowBackward) learns its own part of it later.
  const bool late = used_known_;
  graph_known_ = true;
  if (!late) used_->StartExchange(*group_);
  CompleteBackward();
  used_known_ = true;
  ready_order_.clear();
  if (late) InventReadyOrder();
}

// For a backward in which this rank saw no order, and others did.
void Reducer::InventReadyOrder() {
  if (!MayRebuild() || !ready_order_.empty()) return;
  for (size_t i = 0; i < parameters_.size(); ++i) ready_order_.push_back(static_cast<int>(i));
}

// Every rank exchanges every bucket, whatever this one has: the others must not wait for it in vain.
void Reducer::CompleteBackward() {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i].ready) MarkReady(static_cast<int>(i));
  }
  StartFullBuckets();
  StartDelayed();
  if (DynamicUnused() && !options_.skip_all_reduce_unused_params) used_->StartExchange(*group_);
  const absl::Status reduced = WaitAndDeliver();
  recorder_.EndBackward();
  EndBackward(/*complete=*/last_backward_.ok() && reduced.ok());
  ThrowIfError(Explained(reduced));
}

// What became of a bucket that has started.
absl::StatusOr<at::Tensor> Reducer::Result(Bucket& bucket) {
  if (bucket.work) {
    LOCKSTEP_RETURN_IF_ERROR(recorder_.WaitForBucket(bucket.index, [&] { return bucket.work->Wait(); }));
    return bucket.buffer;
  }
  absl::StatusOr<at::Tensor> result = absl::UnknownError("");
  LOCKSTEP_RETURN_IF_ERROR(
      TorchStatus(absl::StrCat("rank ", group_->rank(), ": the hook's future of bucket ", bucket.index),
                  [&] { result = bucket.future->Wait(); }));
  if (result.ok() && !bucket.sparse && result->sizes() != bucket.buffer.sizes()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", group_->rank(), ": the hook's tensor for bucket ",
                                                   bucket.index, " has shape [", absl::StrJoin(result->sizes(), ", "),
                                                   "], expected [", bucket.buffer.numel(), "]"));
  }
  if (result.ok() && !Skipped(bucket)) recorder_.BucketEnded(bucket.index);
  return result;
}

// `results`: of the buckets from next_delivery_ on. Waits for all of them also where one fails: the next step writes to
// the buckets.
absl::Status Reducer::WaitForBuckets(std::vector<at::Tensor>& results) {
  absl::Status status;
  for (size_t i = next_delivery_; i < buckets_.size(); ++i) {
    absl::StatusOr<at::Tensor> result = Result(buckets_[i]);
    status.Update(result.status());
    if (!result.ok()) continue;
    results.push_back(*std::move(result));
  }
  if (used_) status.Update(used_->WaitForAll());
  return status;
}

absl::Status Reducer::WaitAndDeliver() {
  std::vector<at::Tensor> results;
  LOCKSTEP_RETURN_IF_ERROR(WaitForBuckets(results));
  if (options_.non_finite != NonFinite::kIgnore) LOCKSTEP_RETURN_IF_ERROR(CheckFinite(results));
  for (const at::Tensor& result : results) Deliver(buckets_[next_delivery_++], result);
  return absl::OkStatus();
}

// Adds the bucket's parameters whose part of `content`, which is in the buffer if dense, is not finite.
void Reducer::AddNonFinite(const Bucket& bucket, const at::Tensor& content, std::vector<int>& found) const {
  if (!HasNonFinite(bucket.sparse ? content._values() : content)) return;
  for (const int i : bucket.parameters) {
    if (bucket.sparse || HasNonFinite(states_[i].slot.tensor())) found.push_back(i);
  }
}

// Every rank sees the same sums, so all of them find the same here; only then do they ask each other whose it is.
absl::Status Reducer::CheckFinite(const std::vector<at::Tensor>& results) {
  std::vector<int> in_sum;
  for (size_t i = 0; i < results.size(); ++i) {
    const Bucket& bucket = buckets_[next_delivery_ + i];
    if (!bucket.sparse && !results[i].is_alias_of(bucket.buffer)) bucket.buffer.copy_(results[i]);
    AddNonFinite(bucket, results[i], in_sum);
  }
  if (in_sum.empty()) return absl::OkStatus();
  std::vector<std::string> sums, mine;
  for (const int p : in_sum) sums.push_back(parameters_[p].name);
  for (const int p : not_finite_) mine.push_back(parameters_[p].name);
  auto found = WhoseNonFinite(*group_, sums, mine);
  if (!found.ok()) return found.status();
  recorder_.SetNonFinite(*found);
  if (options_.non_finite == NonFinite::kReport) return absl::OkStatus();
  return NonFiniteError(*found);
}

// The last backward threw. What was started is finished, so that the ranks stay in step if all of them threw at the
// same place.
void Reducer::AbandonBackward() {
  for (Bucket& bucket : buckets_) {
    if (bucket.work || bucket.future) last_backward_.Update(Result(bucket).status());
  }
  EndBackward(/*complete=*/false);
}

// An order in which only some parameters became ready is no order to lay buckets out by.
void Reducer::EndBackward(bool complete) {
  for (Bucket& bucket : buckets_) {
    bucket.work.reset();
    bucket.future.reset();
    bucket.pending = static_cast<int>(bucket.parameters.size());
    if (bucket.sparse) bucket.buffer = at::Tensor();
  }
  for (State& state : states_) {
    state.ready = false;
    if (FirstOfStaticGraph()) state.expected = 0;  // to be learnt again
  }
  arriving_.reset();
  if (!complete) ready_order_.clear();
  if (DynamicUnused()) used_->Clear();
  not_finite_.clear();
  divisor_.reset();
  in_backward_ = false;
  if (births_) Births::Activate(nullptr);
  end_is_queued_ = false;
  if (on_end_) on_end_();
}

// Zeros in every bucket; otherwise what backward does. Gradients that live in the buckets move out.
void Reducer::ShadowBackward() {
  const c10::NoGradGuard no_grad;
  next_bucket_ = next_delivery_ = 0;
  const bool learns_graph = options_.static_graph && !used_known_;
  const bool used_first = learns_graph || (DynamicUnused() && options_.skip_all_reduce_unused_params);
  if (used_first) used_->StartExchange(*group_);
  if (used_first && !learns_graph) ThrowIfError(used_->WaitForAll());
  for (Bucket& bucket : buckets_) {
    if (!bucket.sparse) {
      for (const int i : bucket.parameters) states_[i].slot.Reclaim();
    }
    bucket.buffer = bucket.sparse ? EmptySparse(parameters_[bucket.parameters.front()].tensor) : bucket.buffer.zero_();
    Launch(bucket);
  }
  if (DynamicUnused() && !used_first) used_->StartExchange(*group_);
  std::vector<at::Tensor> results;
  absl::Status reduced = WaitForBuckets(results);
  if (reduced.ok() && options_.non_finite != NonFinite::kIgnore) reduced = CheckFinite(results);
  if (!learns_graph) InventReadyOrder();  // a backward in which others learn a static graph gives them no order
  used_known_ = options_.static_graph;
  EndBackward(/*complete=*/true);
  ThrowIfError(Explained(reduced));
}

absl::Status Reducer::NoGradientError() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!states_[i].ready) names.push_back(parameters_[i].name);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", group_->rank(), ": ", names.size(), " of ", parameters_.size(),
      " parameters got no gradient in the last backward, so it was not averaged: ", absl::StrJoin(names, ", "),
      "; each parameter that requires gradients must take part in the loss, or Options::find_unused_parameters be "
      "set"));
}

}  // namespace lockstep::ddp::internal
