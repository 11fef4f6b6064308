// From a parameter's gradient to the average in its place.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/bucket.h"
#include "lockstep/ddp/internal/kernels.h"
#include "lockstep/ddp/internal/non_finite.h"
#include "lockstep/ddp/internal/reducer.h"
#include "lockstep/ddp/internal/sparse_all_reduce.h"

namespace lockstep::ddp::internal {
namespace {

// Whether nobody but its parameter refers to the gradient's memory, and the engine to `arriving`, which it may be made
// of, and which, being a transposed weight's, may be a view of a tensor that nobody else has.
bool Unshared(const at::Tensor& gradient, const at::Tensor& arriving) {
  if (gradient.use_count() != 1 || !gradient.has_storage()) return false;
  size_t holders = 1;
  if (arriving.defined() && arriving.has_storage() && arriving.is_alias_of(gradient)) {
    ++holders;
    if (arriving.is_view()) {
      if (arriving._base().use_count() > (gradient.is_view() ? 2 : 1)) return false;
      ++holders;
    }
  }
  return gradient.storage().use_count() == holders;
}

// A gradient of an embedding of which no row was used: as one of some rows it has one sparse dimension.
at::Tensor EmptySparse(const at::Tensor& like) {
  std::vector<int64_t> no_rows = like.sizes().vec();
  no_rows[0] = 0;
  const at::TensorOptions options = like.options().requires_grad(false);
  return at::sparse_coo_tensor(at::empty({1, 0}, options.dtype(at::kLong)), at::empty(no_rows, options), like.sizes());
}

}  // namespace

void Reducer::BeginBackward() {
  if (in_backward_ || !sync_) return;
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

void Reducer::CopyIntoSlot(int index, bool used) {
  const c10::NoGradGuard no_grad;
  Slot& slot = states_[index].slot;
  if (states_[index].birthplace && BornInPlace(index)) {
    if (!hook_) Scale(slot.tensor(), slot.tensor(), 1.0 / Divisor());
    return;
  }
  const at::Tensor& gradient = parameters_[index].tensor.grad();
  const bool in_place = gradient.defined() && slot.Holds(gradient);
  // One that this step did not use keeps what it has if nobody used it.
  if (!in_place || !used) slot.Reclaim();
  const at::Tensor& place = slot.tensor();
  const bool divide = !hook_;
  if (!gradient.defined()) {
    place.zero_();
  } else if (in_place && used) {
    if (!divide) return;
    if (options_.gradient_as_bucket_view) {
      place.div_(Divisor());
    } else {
      Scale(place, place, 1.0 / Divisor());
    }
  } else if (!divide || place.scalar_type() != gradient.scalar_type()) {
    Copy(place, gradient);
    if (divide) place.div_(Divisor());
  } else {
    Scale(place, gradient, 1.0 / Divisor());
  }
}

// The gradients that are still to come, where nobody holds what their slots have.
void Reducer::ExpectBirths(const std::vector<int>& parameters) {
  for (const int i : parameters) {
    const State& state = states_[i];
    const at::Tensor& there = state.slot.tensor();
    if (!state.birthplace || state.birth_number == 0 || state.ready) continue;
    if (there.use_count() == 1 && there.storage().use_count() == 1)
      births_->Expect(state.birthplace, state.birth_number);
  }
}

// Whether the parameter's gradient was computed in its slot, which then is the gradient. If something else lives there
// it stays, and the bucket moves.
bool Reducer::BornInPlace(int index) {
  State& state = states_[index];
  const Birthplace& birthplace = *state.birthplace;
  births_->Withdraw(birthplace.bytes, state.birth_number);
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  const at::Tensor& place = state.slot.tensor();
  const bool usable = gradient.defined() && gradient.layout() == at::kStrided && gradient.strides() == place.strides() &&
                      gradient.scalar_type() == place.scalar_type() && Unshared(gradient, arriving_);
  if (birthplace.occupied && usable && gradient.const_data_ptr() == birthplace.data) {
    gradient = place;
    return true;
  }
  state.birth_number = usable ? births_->NumberOf(gradient.const_data_ptr(), birthplace.bytes) : 0;
  if (birthplace.occupied) {
    ++state.misbirths;
    MoveToOtherMemory(buckets_[state.bucket]);
  }
  return false;
}

void Reducer::MoveToOtherMemory(Bucket& bucket) {
  std::vector<Slot> old;
  for (const int i : bucket.parameters) {
    old.push_back(states_[i].slot);
    if (states_[i].birthplace) births_->Withdraw(states_[i].birthplace->bytes, states_[i].birth_number);
  }
  AllocateSlots(bucket);
  for (size_t k = 0; k < old.size(); ++k) {
    const State& state = states_[bucket.parameters[k]];
    if (!state.ready) continue;
    Copy(state.slot.tensor(), old[k].tensor());
    at::Tensor& gradient = parameters_[bucket.parameters[k]].tensor.mutable_grad();
    if (gradient.defined() && old[k].Holds(gradient)) gradient = state.slot.tensor();
  }
  ExpectBirths(bucket.parameters);
}

void Reducer::TakeSparse(int index) {
  const c10::NoGradGuard no_grad;
  const at::Tensor& parameter = parameters_[index].tensor;
  const at::Tensor& gradient = parameter.grad();
  Bucket& bucket = buckets_[states_[index].bucket];
  if (!gradient.defined()) {
    bucket.buffer = EmptySparse(parameter);
  } else if (!gradient.is_sparse()) {
    ThrowIfError(absl::InvalidArgumentError(
        absl::StrCat("rank ", group_->rank(), ": parameter ", parameters_[index].name,
                     " belongs to an embedding with sparse gradients, but its gradient is dense")));
  } else {
    bucket.buffer = gradient.detach().coalesce().div(Divisor());
  }
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
  if (hook_ || bucket.sparse) {
    bucket.future = Reduce(bucket);
  } else {
    bucket.work = group_->AllReduceAsync(bucket.buffer);
  }
}

Future Reducer::Reduce(Bucket& bucket) {
  if (bucket.sparse) return Future([this, sum = bucket.buffer] { return SparseAllReduce(*group_, sum); });
  GradBucket for_hook = bucket.for_hook;
  for_hook.buffer = bucket.buffer;
  for (const int i : bucket.parameters) for_hook.gradients.push_back(states_[i].slot.tensor());
  return hook_(for_hook);
}

// The slots become the gradients before they are reduced, so that the memory of what they replace is free for the rest
// of backward.
void Reducer::ReplaceGradients(const Bucket& bucket) {
  if (bucket.sparse || options_.reduce_dtype) return;
  for (const int i : bucket.parameters) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!gradient.defined() || states_[i].slot.Holds(gradient)) continue;
    if (NeedsSink() && !used_->Used(i)) continue;
    if (options_.gradient_as_bucket_view || Unshared(gradient, arriving_)) gradient = states_[i].slot.tensor();
  }
}

// Buckets whose all_reduce is over while backward goes on. Not those that the gradient at hand has just filled: the
// engine still refers to that one.
void Reducer::DeliverFinished() {
  // Which parameters any rank used, and whether all is finite, is known at the end.
  if (NeedsSink() || options_.non_finite != NonFinite::kIgnore) return;
  for (; next_delivery_ < next_bucket_; ++next_delivery_) {
    Bucket& bucket = buckets_[next_delivery_];
    if (!bucket.work || !bucket.work->IsCompleted()) return;
    ThrowIfError(Explained(bucket.work->Wait()));
    recorder_.BucketEnded(next_delivery_);
    Deliver(bucket, bucket.buffer);
  }
}

void Reducer::Deliver(Bucket& bucket, const at::Tensor& result) {
  const c10::NoGradGuard no_grad;
  if (bucket.sparse) {
    if (!NeedsSink() || used_->Used(bucket.parameters.front()))
      parameters_[bucket.parameters.front()].tensor.mutable_grad() = result;
  } else {
    if (!result.is_alias_of(bucket.buffer)) bucket.buffer.copy_(result);
    for (const int i : bucket.parameters) DeliverParameter(i);
  }
  if (on_bucket_) on_bucket_(bucket.parameters);
}

void Reducer::DeliverParameter(int index) {
  // A parameter that no rank used keeps the gradient it had.
  if (NeedsSink() && !used_->Used(index)) return;
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  const at::Tensor& average = states_[index].slot.tensor();
  if (average.scalar_type() != states_[index].dtype) {
    gradient = average.to(states_[index].dtype);
    return;
  }
  if (gradient.defined() && gradient.is_alias_of(average)) return;
  // The dtype differs where the gradient is that of a parameter in another one for now (MixedPrecision).
  if (!gradient.defined() || gradient.scalar_type() != average.scalar_type() || Unshared(gradient, arriving_)) {
    gradient = average;
  } else {
    gradient.detach().copy_(average);
  }
}

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
absl::StatusOr<at::Tensor> Reducer::Result(Bucket& bucket) const {
  if (bucket.work) {
    LOCKSTEP_RETURN_IF_ERROR(bucket.work->Wait());
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
    if (!Skipped(buckets_[i])) recorder_.BucketEnded(i);
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
