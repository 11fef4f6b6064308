#include "lockstep/ddp/internal/reducer.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/buckets.h"

namespace lockstep::ddp::internal {
namespace {

std::vector<BucketItem> Items(const std::vector<NamedTensor>& parameters, const std::vector<int>& order) {
  std::vector<BucketItem> items;
  for (const int i : order) {
    const at::Tensor& tensor = parameters[i].tensor;
    items.push_back({static_cast<int64_t>(tensor.nbytes()), tensor.scalar_type(), tensor.device()});
  }
  return items;
}

// The part of `buffer` from `offset` as a tensor shaped like `parameter`, with its strides where they leave no gaps. It
// shares the storage but is no autograd view: optimizers' zero_grad() detaches gradients in place, which a view
// refuses.
at::Tensor PartLike(const at::Tensor& buffer, int64_t offset, const at::Tensor& parameter) {
  const at::Tensor part = at::empty({0}, buffer.options());
  if (parameter.is_non_overlapping_and_dense())
    return part.set_(buffer.storage(), offset, parameter.sizes(), parameter.strides());
  return part.set_(buffer.storage(), offset, parameter.sizes());
}

}  // namespace

struct Reducer::Bucket {
  std::vector<int> parameters;
  at::Tensor buffer;
  int pending = 0;  // parameters whose gradient is not in yet
  absl::optional<comm::Work> work;
};

class Reducer::Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(Reducer* reducer, int index) : reducer_(reducer), index_(index) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    reducer_->MarkReady(index_);
    return outputs;
  }

 private:
  Reducer* const reducer_;  // whose destructor removes this hook
  const int index_;
};

Reducer::Reducer(std::vector<NamedTensor> parameters, comm::ProcessGroup* group, ReducerOptions options)
    : parameters_(std::move(parameters)), group_(group), options_(options), slots_(parameters_.size()) {
  for (size_t i = 0; i < parameters_.size(); ++i) InstallHook(static_cast<int>(i));
  std::vector<int> all(parameters_.size());
  std::iota(all.begin(), all.end(), 0);
  auto layout = AssignBuckets(Items(parameters_, all), {std::numeric_limits<int64_t>::max()}, BucketOrder::kFirstItem);
  // Gradients become ready roughly from the last parameter to the first.
  BuildBuckets({layout.rbegin(), layout.rend()});
}

Reducer::~Reducer() {
  for (size_t i = 0; i < hooks_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
}

void Reducer::InstallHook(int index) {
  accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[index].tensor));
  hooks_.push_back(accumulators_.back()->add_post_hook(std::make_unique<Hook>(this, index)));
}

void Reducer::BuildBuckets(const std::vector<std::vector<int>>& layout) {
  const c10::NoGradGuard no_grad;
  buckets_.clear();
  for (const std::vector<int>& indices : layout) {
    Bucket bucket;
    bucket.parameters = indices;
    bucket.pending = static_cast<int>(indices.size());
    int64_t numel = 0;
    for (const int i : indices) numel += parameters_[i].tensor.numel();
    const at::Tensor& first = parameters_[indices.front()].tensor;
    bucket.buffer = at::empty({numel}, at::device(first.device()).dtype(first.scalar_type()));
    int64_t offset = 0;
    for (const int i : indices) {
      const at::Tensor& parameter = parameters_[i].tensor;
      slots_[i] = {static_cast<int>(buckets_.size()), PartLike(bucket.buffer, offset, parameter), false};
      offset += parameter.numel();
    }
    buckets_.push_back(std::move(bucket));
  }
}

std::vector<std::vector<int>> Reducer::BucketLayout() const {
  std::vector<std::vector<int>> layout;
  for (const Bucket& bucket : buckets_) layout.push_back(bucket.parameters);
  return layout;
}

void Reducer::PrepareForward() {
  if (in_backward_) AbandonBackward();
  ThrowIfError(std::exchange(last_backward_, absl::OkStatus()));
  CheckHooks();
  if (!rebuilt_ && ready_order_.size() == parameters_.size() && !parameters_.empty()) RebuildBuckets();
}

// The last backward threw. What was started is finished, so that the ranks stay in step if all of them threw at the
// same place.
void Reducer::AbandonBackward() {
  for (Bucket& bucket : buckets_) {
    if (bucket.work) last_backward_.Update(bucket.work->Wait());
  }
  EndBackward(/*complete=*/false);
}

// An order in which only some parameters became ready is no order to lay buckets out by.
void Reducer::EndBackward(bool complete) {
  for (Bucket& bucket : buckets_) {
    bucket.work.reset();
    bucket.pending = static_cast<int>(bucket.parameters.size());
  }
  for (Slot& slot : slots_) slot.ready = false;
  if (!complete) ready_order_.clear();
  in_backward_ = false;
}

void Reducer::CheckHooks() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (torch::autograd::impl::try_get_grad_accumulator(parameters_[i].tensor) == accumulators_[i]) continue;
    ThrowIfError(
        absl::FailedPreconditionError(absl::StrCat("rank ", group_->rank(), ": parameter ", parameters_[i].name,
                                                   " is no longer the one that was wrapped, so its gradient would not "
                                                   "be averaged: call module->to(...) before ddp::Wrap")));
  }
}

void Reducer::RebuildBuckets() {
  const std::vector<int>& order = ready_order_;
  std::vector<std::vector<int>> layout = AssignBuckets(
      Items(parameters_, order), {options_.first_bucket_bytes, options_.bucket_bytes}, BucketOrder::kFilled);
  for (std::vector<int>& bucket : layout) {
    for (int& position : bucket) position = order[position];
  }
  layout = AgreeOnLayout(layout);
  if (layout != BucketLayout()) BuildBuckets(layout);
  rebuilt_ = true;
}

// Rank 0's layout. Two broadcasts, as PyTorch's: the parameters in bucket order with the number of buckets, then the
// buckets' sizes.
std::vector<std::vector<int>> Reducer::AgreeOnLayout(const std::vector<std::vector<int>>& mine) {
  std::vector<int> flat, sizes;
  for (const std::vector<int>& bucket : mine) {
    flat.insert(flat.end(), bucket.begin(), bucket.end());
    sizes.push_back(static_cast<int>(bucket.size()));
  }
  flat.push_back(static_cast<int>(mine.size()));
  const auto from_rank_0 = [&](const std::vector<int>& values) {
    const at::Tensor tensor = at::tensor(values, at::kInt).to(parameters_.front().tensor.device());
    ThrowIfError(group_->Broadcast(tensor, /*root=*/0));
    const at::Tensor host = tensor.cpu();
    return std::vector<int>(host.data_ptr<int>(), host.data_ptr<int>() + host.numel());
  };
  flat = from_rank_0(flat);
  sizes.resize(flat.back());
  sizes = from_rank_0(sizes);
  std::vector<std::vector<int>> layout;
  auto next = flat.begin();
  for (const int size : sizes) {
    layout.emplace_back(next, next + size);
    next += size;
  }
  return layout;
}

void Reducer::BeginBackward() {
  in_backward_ = true;
  next_bucket_ = 0;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { FinishBackward(); });
}

void Reducer::MarkReady(int index) {
  if (!in_backward_) BeginBackward();
  Slot& slot = slots_[index];
  // A second time in one backward: the parameter's node ran again, as under checkpointed recomputation.
  TORCH_CHECK(!slot.ready, "rank ", group_->rank(), ": parameter ", parameters_[index].name,
              " got its gradient twice in one backward");
  slot.ready = true;
  if (!rebuilt_ && ready_order_.size() < parameters_.size()) ready_order_.push_back(index);
  CopyIntoBucket(index);
  --buckets_[slot.bucket].pending;
  StartFullBuckets();
}

void Reducer::CopyIntoBucket(int index) {
  const c10::NoGradGuard no_grad;
  const at::Tensor& parameter = parameters_[index].tensor;
  Slot& slot = slots_[index];
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) {
    slot.view.zero_();
  } else if (gradient.is_sparse()) {
    ThrowIfError(absl::UnimplementedError(absl::StrCat("rank ", group_->rank(), ": parameter ", parameters_[index].name,
                                                       " has a sparse gradient; dense ones are averaged")));
  } else if (gradient.is_alias_of(slot.view)) {
    slot.view.div_(group_->size());
  } else {
    // The scalar PyTorch multiplies by, through the same kernel, so that the rounding is the same.
    at::mul_out(slot.view, gradient.detach(), at::native::wrapped_scalar_tensor(1.0 / group_->size()));
  }
  if (options_.gradient_as_bucket_view && gradient.defined()) gradient = slot.view;
}

void Reducer::StartFullBuckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) {
    Bucket& bucket = buckets_[next_bucket_++];
    bucket.work = group_->AllReduceAsync(bucket.buffer);
  }
}

// What waits for the end of backward: the bucket results, the gradients, and the verdict on parameters without one.
void Reducer::FinishBackward() {
  const c10::NoGradGuard no_grad;
  absl::Status reduced;
  const bool complete = next_bucket_ == buckets_.size();
  if (!complete) last_backward_ = NoGradientError();
  for (Bucket& bucket : buckets_) {
    if (!bucket.work) continue;
    reduced.Update(bucket.work->Wait());
    if (!reduced.ok()) continue;
    for (const int i : bucket.parameters) CopyOutOfBucket(i);
  }
  EndBackward(complete);
  ThrowIfError(reduced);
}

void Reducer::CopyOutOfBucket(int index) {
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  const at::Tensor& view = slots_[index].view;
  if (!gradient.defined()) {
    gradient = options_.gradient_as_bucket_view ? view : view.clone();
  } else if (!gradient.is_alias_of(view)) {
    gradient.detach().copy_(view);
  }
}

absl::Status Reducer::NoGradientError() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!slots_[i].ready) names.push_back(parameters_[i].name);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", group_->rank(), ": ", names.size(), " of ", parameters_.size(),
      " parameters got no gradient in the last backward, so it was not averaged: ", absl::StrJoin(names, ", "),
      "; each parameter that requires gradients must take part in the loss"));
}

}  // namespace lockstep::ddp::internal
