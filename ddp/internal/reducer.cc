// Hooks, layouts and what comes before a forward. Backward is in reducer_backward.cc, reducer_gradients.cc and
// reducer_finish.cc.

#include "lockstep/ddp/internal/reducer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <malloc.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/store_call.h"
#include "lockstep/ddp/internal/bucket.h"
#include "lockstep/ddp/internal/buckets.h"
#include "lockstep/ddp/internal/stream_capture.h"

namespace lockstep::ddp::internal {
namespace {

// The items of `order` that are reduced in buckets, with the parameter of each.
std::vector<BucketItem> Items(const std::vector<ReducedParameter>& parameters, const std::vector<int>& order) {
  std::vector<BucketItem> items;
  for (const int i : order) {
    const at::Tensor& tensor = parameters[i].tensor;
    items.push_back(
        {static_cast<int64_t>(tensor.nbytes()), tensor.scalar_type(), tensor.device(), parameters[i].sparse});
  }
  return items;
}

// Whose times a step's are: of one GPU, if the parameters are all there, since times of two cannot be compared.
absl::optional<c10::Device> TimedDevice(const std::vector<ReducedParameter>& parameters) {
  const c10::Device device = parameters.front().tensor.device();
  const bool on_one = std::all_of(parameters.begin(), parameters.end(), [device](const ReducedParameter& parameter) {
    return parameter.tensor.device() == device;
  });
  return on_one && device.is_cuda() ? absl::make_optional(device) : absl::nullopt;
}

// How long an error waits for the word of the rank that it may come of.
constexpr absl::Duration kWordPatience = absl::Seconds(1);

// Where something else was born so often, the graph is not the same in every backward.
constexpr int kMisbirths = 3;

std::vector<std::vector<int>> Assign(const std::vector<ReducedParameter>& parameters, const std::vector<int>& order,
                                     const std::vector<int64_t>& limits, BucketOrder bucket_order) {
  auto layout = AssignBuckets(Items(parameters, order), limits, bucket_order);
  for (std::vector<int>& bucket : layout) {
    for (int& position : bucket) position = order[position];
  }
  return layout;
}

}  // namespace

class Reducer::Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(Reducer* reducer, int index) : reducer_(reducer), index_(index) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    reducer_->OnGradient(index_, inputs.empty() ? at::Tensor() : inputs.front());
    return outputs;
  }

 private:
  Reducer* const reducer_;  // whose destructor removes this hook
  const int index_;
};

Reducer::Reducer(std::vector<ReducedParameter> parameters, comm::ProcessGroup* group, ReducerOptions options)
    : parameters_(std::move(parameters)),
      group_(group),
      options_(std::move(options)),
      word_key_(group->NextKey("ddp_no_gradient")),
      recorder_(group->rank(), TimedDevice(parameters_)),
      states_(parameters_.size()) {
  if (NeedsSink()) used_.emplace(static_cast<int>(parameters_.size()), parameters_.front().tensor.device());
  if (GradientAllocatorInstalled() && parameters_.front().tensor.is_cpu() && !options_.reduce_dtype)
    births_ = std::make_shared<Births>();
  InstallHooks();
  BuildBuckets(FirstLayout());
}

Reducer::~Reducer() { RemoveHooks(); }

void Reducer::InstallHooks() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i].tensor));
    hooks_.push_back(accumulators_.back()->add_post_hook(std::make_unique<Hook>(this, static_cast<int>(i))));
  }
}

void Reducer::RemoveHooks() {
  for (size_t i = 0; i < hooks_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
  hooks_.clear();
  accumulators_.clear();
}

void Reducer::ReinstallHooks() {
  RemoveHooks();
  InstallHooks();
  hooks_move_ = true;
}

std::vector<std::vector<int>> Reducer::FirstLayout() const {
  std::vector<int> order;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].delayed) order.push_back(static_cast<int>(i));
  }
  auto layout = Assign(parameters_, order, options_.first_limits, BucketOrder::kFirstItem);
  // Gradients become ready roughly from the last parameter to the first.
  return {layout.rbegin(), layout.rend()};
}

void Reducer::BuildBuckets(const std::vector<std::vector<int>>& layout) {
  const c10::NoGradGuard no_grad;
  std::vector<int> delayed;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].delayed) delayed.push_back(static_cast<int>(i));
  }
  const std::vector<int> moved = MoveGradientsOut();  // so that the new buckets take the memory of the old
  buckets_.clear();
  for (State& state : states_) state.slot = Slot();
  for (const std::vector<int>& indices : layout) buckets_.push_back(MakeBucket(indices));
  ordered_ = buckets_.size();
  if (!delayed.empty()) {
    buckets_.push_back(MakeBucket(delayed));
    buckets_.back().delayed = true;
  }
  MoveGradientsIn(moved);
  std::vector<BucketStatistics> statistics;
  for (Bucket& bucket : buckets_) {
    bucket.for_hook.is_last = bucket.index + 1 == static_cast<int>(buckets_.size());
    BucketStatistics figures;
    figures.index = bucket.index;
    figures.bytes = bucket.sparse ? 0 : static_cast<int64_t>(bucket.buffer.nbytes());
    figures.parameters = std::make_shared<const std::vector<std::string>>(bucket.for_hook.names);
    statistics.push_back(std::move(figures));
  }
  recorder_.SetBuckets(std::move(statistics));
  ++layout_;
}

Reducer::Bucket Reducer::MakeBucket(const std::vector<int>& indices) {
  Bucket bucket;
  bucket.index = static_cast<int>(buckets_.size());
  bucket.parameters = indices;
  bucket.pending = static_cast<int>(indices.size());
  const ReducedParameter& first = parameters_[indices.front()];
  bucket.sparse = first.sparse;
  for (const int i : indices) {
    states_[i].bucket = bucket.index;
    states_[i].dtype = parameters_[i].tensor.scalar_type();
    bucket.for_hook.parameters.push_back(parameters_[i].tensor);
    bucket.for_hook.names.push_back(parameters_[i].name);
  }
  if (!bucket.sparse) AllocateSlots(bucket);
  bucket.for_hook.index = bucket.index;
  bucket.for_hook.layout = layout_;
  return bucket;
}

void Reducer::AllocateSlots(Bucket& bucket) {
  const at::Tensor& first = parameters_[bucket.parameters.front()].tensor;
  int64_t numel = 0;
  for (const int i : bucket.parameters) numel += parameters_[i].tensor.numel();
  const at::ScalarType dtype = options_.reduce_dtype.value_or(first.scalar_type());
  if (first.is_cpu()) {
    auto shared = group_->AllocateShared({numel}, dtype);
    ThrowIfError(shared.status());
    bucket.buffer = *std::move(shared);
  } else {
    bucket.buffer = at::empty({numel}, first.options().dtype(dtype).requires_grad(false));
  }
  bucket.multiplied_in_sum =
      first.is_cpu() && (dtype == at::kFloat || dtype == at::kDouble) && group_->size() > 1 && group_->SharesMemory();
  bucket.for_hook.buffer = bucket.buffer;
  bucket.for_hook.gradients.clear();
  int64_t offset = 0;
  for (const int i : bucket.parameters) {
    const at::Tensor& parameter = parameters_[i].tensor;
    states_[i].slot = Slot(bucket.buffer, offset, parameter);
    const at::Tensor& place = states_[i].slot.tensor();
    bucket.for_hook.gradients.push_back(bucket.buffer.as_strided(place.sizes(), place.strides(), offset));
    offset += parameter.numel();
    states_[i].birthplace.reset();
    if (!births_ || states_[i].misbirths > kMisbirths || parameter.nbytes() < Births::kLeastBytes) continue;
    states_[i].birthplace = std::make_shared<Birthplace>();
    states_[i].birthplace->data = states_[i].slot.tensor().data_ptr();
    states_[i].birthplace->bytes = parameter.nbytes();
    states_[i].birthplace->buffer = bucket.buffer;
  }
}

std::vector<std::vector<int>> Reducer::BucketLayout() const {
  std::vector<std::vector<int>> layout;
  for (const Bucket& bucket : buckets_) layout.push_back(bucket.parameters);
  return layout;
}

std::vector<std::vector<int>> Reducer::LayoutOfReadyOrder() const {
  std::vector<int> order;
  for (const int i : ready_order_) {
    if (!parameters_[i].delayed) order.push_back(i);
  }
  return Assign(parameters_, order, options_.limits, BucketOrder::kFilled);
}

std::vector<std::vector<int>> Reducer::NextLayout() const {
  if (MayRebuild()) return LayoutOfReadyOrder();
  std::vector<std::vector<int>> layout = BucketLayout();
  layout.resize(ordered_);
  return layout;
}

void Reducer::RestoreLayout(const std::vector<std::vector<int>>& layout) {
  BuildBuckets(layout);
  ready_order_.clear();
  rebuilt_ = true;
}

void Reducer::SetHook(CommunicationHook hook) { hook_ = std::move(hook); }

void Reducer::PrepareForward(bool sync) {
  if (in_backward_) AbandonBackward();
  ThrowIfError(std::exchange(last_backward_, absl::OkStatus()));
  ThrowIfError(group_->failure());
  CheckHooks();
  sync_ = sync;
  LookForCapture();
}

// A CUDA graph repeats what the device does, so the host may read nothing of it, and nothing may differ next time.
void Reducer::LookForCapture() {
  captured_ = StreamIsCaptured(parameters_.front().tensor.device());
  recorder_.SetCaptured(captured_);
  if (!captured_) return;
  const std::string why_not = WhyNotCaptured();
  if (why_not.empty()) return;
  ThrowIfError(absl::FailedPreconditionError(
      absl::StrCat("rank ", group_->rank(), ": a CUDA graph cannot hold this step: ", why_not)));
}

std::string Reducer::WhyNotCaptured() const {
  if (MayRebuild()) return "the second forward lays the buckets out anew; run two steps before the capture";
  if (!sync_) return "";
  if (DynamicUnused()) return "with Options::find_unused_parameters the host learns in each step which are used";
  if (options_.non_finite != NonFinite::kIgnore) return "with Options::non_finite the host reads the gradients";
  for (const ReducedParameter& parameter : parameters_) {
    if (parameter.sparse)
      return absl::StrCat("the gradient of parameter ", parameter.name, " is sparse, and the host counts its rows");
  }
  return "";
}

// Leaves word of what this rank's backward lacked, for the others to find should this rank go away over it.
void Reducer::LeaveWord() {
  if (!group_->OnlyLockstepRanks()) return;
  const auto leave = [key = word_key_, word = std::string(last_backward_.message())](c10d::Store& store) {
    store.set(key, word);
    return absl::OkStatus();
  };
  last_backward_.Update(comm::CallStore(*group_, absl::Now() + group_->timeout(), leave));
}

absl::Status Reducer::Explained(const absl::Status& status) const {
  if (!group_->OnlyLockstepRanks()) return status;
  // After a timeout the store may be that of a stopped rank, which would not answer: it is not worth the wait. Where
  // the store is gone, with the rank that served it, `status` has to do.
  if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) return status;
  const auto word = std::make_shared<std::string>();
  const auto read = [key = word_key_, word](c10d::Store& store) {
    if (store.check({key})) *word = store.get_to_str(key);
    return absl::OkStatus();
  };
  if (!comm::CallStore(*group_, absl::Now() + kWordPatience, read).ok() || word->empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; before that, ", *word));
}

void Reducer::CheckHooks() const {
  if (hooks_move_) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (torch::autograd::impl::try_get_grad_accumulator(parameters_[i].tensor) == accumulators_[i]) continue;
    ThrowIfError(
        absl::FailedPreconditionError(absl::StrCat("rank ", group_->rank(), ": parameter ", parameters_[i].name,
                                                   " is no longer the one that was wrapped, so its gradient would not "
                                                   "be averaged: call module->to(...) before ddp::Wrap")));
  }
}

void Reducer::RebuildIfDue() {
  if (!MayRebuild() || ready_order_.empty()) return;
  const auto layout = AgreeOnLayout(LayoutOfReadyOrder());
  std::vector<std::vector<int>> present = BucketLayout();
  present.resize(ordered_);
  if (layout != present) BuildBuckets(layout);
  // The first backward's gradients, which buckets have replaced, and those that moved: malloc would keep their memory,
  // as much as all buckets have, beside what forward is about to ask for.
  malloc_trim(0);
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

}  // namespace lockstep::ddp::internal
