#include "lockstep/ddp/internal/gradient_buckets.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/kernels.h"

namespace lockstep::ddp::internal {
namespace {

// After more mismatches than this the graph apparently differs between backwards, so the slot is not offered again.
constexpr int kMismatches = 3;

// Returns whether only its parameter refers to the gradient's memory, apart from autograd's `arriving`. The gradient
// may share memory with that tensor. For a transposed weight `arriving` is a view of a tensor that nothing else refers
// to.
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

}  // namespace

at::Tensor EmptySparse(const at::Tensor& parameter) {
  std::vector<int64_t> no_rows = parameter.sizes().vec();
  no_rows[0] = 0;
  const at::TensorOptions options = parameter.options().requires_grad(false);
  return at::sparse_coo_tensor(at::empty({1, 0}, options.dtype(at::kLong)), at::empty(no_rows, options),
                               parameter.sizes());
}

GradientBuckets::GradientBuckets(const std::vector<ReducedParameter>* parameters, const UsedParameters* used,
                                 GradientBucketsOptions options)
    : parameters_(*parameters),
      used_(*used),
      options_(std::move(options)),
      requests_(options_.request_slots ? std::make_shared<SlotRequests>() : nullptr),
      places_(parameters->size()) {}

// Building.

void GradientBuckets::Build(const Layout& layout) {
  const c10::NoGradGuard no_grad;
  const std::vector<int> moved = MoveGradientsOut();  // so that the new buckets take the memory of the old
  buckets_.clear();
  for (Place& place : places_) {
    place.slot = Slot();
    place.memory.reset();
  }
  for (const std::vector<int>& parameters : layout) buckets_.push_back(MakeBucket(parameters));
  for (Bucket& bucket : buckets_) bucket.for_hook.is_last = bucket.index + 1 == size();
  MoveGradientsIn(moved);
  ++layouts_;
}

Bucket GradientBuckets::MakeBucket(const std::vector<int>& parameters) {
  Bucket bucket;
  bucket.index = size();
  bucket.parameters = parameters;
  bucket.sparse = parameters_[parameters.front()].sparse;
  for (const int i : parameters) {
    places_[i].bucket = bucket.index;
    places_[i].dtype = parameters_[i].tensor.scalar_type();
    bucket.for_hook.parameters.push_back(parameters_[i].tensor);
    bucket.for_hook.names.push_back(parameters_[i].name);
  }
  if (!bucket.sparse) AllocateSlots(bucket);
  bucket.for_hook.index = bucket.index;
  bucket.for_hook.layout = layouts_;
  return bucket;
}

void GradientBuckets::AllocateSlots(Bucket& bucket) {
  const at::Tensor& first = parameters_[bucket.parameters.front()].tensor;
  int64_t numel = 0;
  for (const int i : bucket.parameters) numel += parameters_[i].tensor.numel();
  const at::ScalarType dtype = options_.reduce_dtype.value_or(first.scalar_type());
  if (first.is_cpu()) {
    auto allocated = options_.allocate(numel, dtype);
    ThrowIfError(allocated.status());
    bucket.buffer = *std::move(allocated);
  } else {
    bucket.buffer = at::empty({numel}, first.options().dtype(dtype).requires_grad(false));
  }
  bucket.for_hook.buffer = bucket.buffer;
  bucket.for_hook.gradients.clear();
  int64_t offset = 0;
  for (const int i : bucket.parameters) {
    const at::Tensor& parameter = parameters_[i].tensor;
    Place& place = places_[i];
    place.slot = Slot(bucket.buffer, offset, parameter);
    const at::Tensor& slot = place.slot.tensor();
    bucket.for_hook.gradients.push_back(bucket.buffer.as_strided(slot.sizes(), slot.strides(), offset));
    offset += parameter.numel();
    place.memory.reset();
    if (!requests_ || place.mismatches > kMismatches || parameter.nbytes() < SlotRequests::kLeastBytes) continue;
    place.memory = std::make_shared<SlotMemory>();
    place.memory->data = slot.data_ptr();
    place.memory->bytes = parameter.nbytes();
    place.memory->buffer = bucket.buffer;
  }
}

// Moves the gradients that live in the slots to other memory. Returns the parameters whose gradients these are.
std::vector<int> GradientBuckets::MoveGradientsOut() {
  std::vector<int> moved;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Slot& slot = places_[i].slot;
    if (!slot.tensor().defined()) continue;
    const at::Tensor& gradient = parameters_[i].tensor.grad();
    if (gradient.defined() && slot.Holds(gradient)) moved.push_back(static_cast<int>(i));
    slot.Reclaim();
  }
  return moved;
}

void GradientBuckets::MoveGradientsIn(const std::vector<int>& parameters) {
  for (const int i : parameters) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!options_.gradient_as_bucket_view && !Unshared(gradient, /*arriving=*/at::Tensor())) continue;
    Copy(places_[i].slot.tensor(), gradient);
    gradient = places_[i].slot.tensor();
  }
}

// Backward: gradients come in.

void GradientBuckets::BeginBackward() {
  if (!requests_) return;
  requests_->Begin();
  for (const Bucket& bucket : buckets_) ExpectRequests(bucket.parameters);
  SlotRequests::Activate(requests_);
}

void GradientBuckets::Fill(int parameter, const at::Tensor& arriving, double divisor) {
  const c10::NoGradGuard no_grad;
  places_[parameter].filled = true;
  Bucket& bucket = buckets_[places_[parameter].bucket];
  if (AveragedElsewhere(parameter)) {
    FillSlotWithZeros(parameter);
  } else if (bucket.sparse) {
    bucket.buffer = SparseGradient(parameter, divisor);
  } else {
    FillSlot(parameter, arriving, divisor);
  }
}

void GradientBuckets::FillSlotWithZeros(int parameter) {
  Place& place = places_[parameter];
  Bucket& bucket = buckets_[place.bucket];
  if (bucket.sparse) {
    bucket.buffer = EmptySparse(parameters_[parameter].tensor);
    return;
  }
  if (place.memory) {
    requests_->Withdraw(place.memory->bytes, place.request);
    if (place.memory->occupied) MoveToOtherMemory(bucket);
  }
  place.slot.Reclaim();
  place.slot.tensor().zero_();
}

void GradientBuckets::FillSlot(int parameter, const at::Tensor& arriving, double divisor) {
  Place& place = places_[parameter];
  const bool divide = divisor != 1;
  if (place.memory && ComputedInSlot(parameter, arriving)) {
    if (divide) Scale(place.slot.tensor(), place.slot.tensor(), 1.0 / divisor);
    return;
  }
  const at::Tensor& gradient = parameters_[parameter].tensor.grad();
  const bool used = used_.Used(parameter);
  const bool in_place = gradient.defined() && place.slot.Holds(gradient);
  // A parameter that this step did not use keeps its gradient if no rank used it.
  if (!in_place || !used) place.slot.Reclaim();
  const at::Tensor& slot = place.slot.tensor();
  if (!gradient.defined()) {
    slot.zero_();
  } else if (in_place && used) {
    if (divide && options_.gradient_as_bucket_view) {
      slot.div_(divisor);
    } else if (divide) {
      Scale(slot, slot, 1.0 / divisor);
    }
  } else if (!divide || slot.scalar_type() != gradient.scalar_type() ||
             (in_place && options_.gradient_as_bucket_view)) {
    Copy(slot, gradient);
    if (divide) slot.div_(divisor);
  } else {
    Scale(slot, gradient, 1.0 / divisor);
  }
}

at::Tensor GradientBuckets::SparseGradient(int parameter, double divisor) const {
  const at::Tensor& tensor = parameters_[parameter].tensor;
  const at::Tensor& gradient = tensor.grad();
  if (!gradient.defined()) return EmptySparse(tensor);
  if (!gradient.is_sparse()) {
    ThrowIfError(absl::InvalidArgumentError(
        absl::StrCat("rank ", options_.rank, ": parameter ", parameters_[parameter].name,
                     " belongs to an embedding with sparse gradients, but its gradient is dense")));
  }
  return gradient.detach().div(divisor);  // not coalesced yet, as in Python: the bits differ
}

// Offers the slots of gradients that are still to come, unless somebody holds the gradient that lives in one.
void GradientBuckets::ExpectRequests(const std::vector<int>& parameters) {
  for (const int i : parameters) {
    const Place& place = places_[i];
    const at::Tensor& slot = place.slot.tensor();
    if (!place.memory || place.request == 0 || place.filled) continue;
    if (slot.use_count() == 1 && slot.storage().use_count() == 1) requests_->Expect(place.memory, place.request);
  }
}

// Returns whether the parameter's gradient was computed in its slot. The slot is the gradient then. If another tensor
// was allocated in the slot, that tensor stays where it is, and the bucket moves.
bool GradientBuckets::ComputedInSlot(int parameter, const at::Tensor& arriving) {
  Place& place = places_[parameter];
  const SlotMemory& memory = *place.memory;
  requests_->Withdraw(memory.bytes, place.request);
  at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  const at::Tensor& slot = place.slot.tensor();
  const bool usable = gradient.defined() && gradient.layout() == at::kStrided && gradient.strides() == slot.strides() &&
                      gradient.scalar_type() == slot.scalar_type() && Unshared(gradient, arriving);
  if (memory.occupied && usable && gradient.const_data_ptr() == memory.data) {
    gradient = slot;
    return true;
  }
  place.request = usable ? requests_->NumberOf(gradient.const_data_ptr(), memory.bytes) : 0;
  if (memory.occupied) {
    ++place.mismatches;
    MoveToOtherMemory(buckets_[place.bucket]);
  }
  return false;
}

void GradientBuckets::MoveToOtherMemory(Bucket& bucket) {
  std::vector<Slot> old;
  for (const int i : bucket.parameters) {
    old.push_back(places_[i].slot);
    if (places_[i].memory) requests_->Withdraw(places_[i].memory->bytes, places_[i].request);
  }
  AllocateSlots(bucket);
  for (size_t k = 0; k < old.size(); ++k) {
    const Place& place = places_[bucket.parameters[k]];
    if (!place.filled) continue;
    Copy(place.slot.tensor(), old[k].tensor());
    at::Tensor& gradient = parameters_[bucket.parameters[k]].tensor.mutable_grad();
    if (gradient.defined() && old[k].Holds(gradient)) gradient = place.slot.tensor();
  }
  ExpectRequests(bucket.parameters);
}

// Backward: a bucket is full.

void GradientBuckets::ReplaceGradients(int bucket, const at::Tensor& arriving) {
  if (buckets_[bucket].sparse || options_.reduce_dtype) return;
  for (const int i : buckets_[bucket].parameters) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!gradient.defined() || places_[i].slot.Holds(gradient) || !used_.Used(i) || AveragedElsewhere(i)) continue;
    if (options_.gradient_as_bucket_view || Unshared(gradient, arriving)) gradient = places_[i].slot.tensor();
  }
}

void GradientBuckets::FillWithZeros(int index) {
  Bucket& bucket = buckets_[index];
  if (bucket.sparse) {
    bucket.buffer = EmptySparse(parameters_[bucket.parameters.front()].tensor);
    return;
  }
  for (const int i : bucket.parameters) places_[i].slot.Reclaim();
  bucket.buffer.zero_();
}

// Backward: a bucket is reduced.

void GradientBuckets::Deliver(int index, const at::Tensor& result) {
  const c10::NoGradGuard no_grad;
  const Bucket& bucket = buckets_[index];
  if (bucket.sparse) {
    const int parameter = bucket.parameters.front();
    if (used_.Used(parameter) && !AveragedElsewhere(parameter)) parameters_[parameter].tensor.mutable_grad() = result;
    return;
  }
  TakeResult(index, result);
  for (const int i : bucket.parameters) DeliverParameter(i);
}

void GradientBuckets::TakeResult(int index, const at::Tensor& result) {
  const Bucket& bucket = buckets_[index];
  if (!bucket.sparse && !result.is_alias_of(bucket.buffer)) bucket.buffer.copy_(result);
}

void GradientBuckets::DeliverParameter(int parameter) {
  if (!used_.Used(parameter) || AveragedElsewhere(parameter)) return;
  const Place& place = places_[parameter];
  at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
  const at::Tensor& average = place.slot.tensor();
  if (average.scalar_type() != place.dtype) {
    gradient = average.to(place.dtype);
    return;
  }
  if (gradient.defined() && gradient.is_alias_of(average)) return;
  // The dtypes differ if the parameter has another dtype during backward (see MixedPrecision).
  if (!gradient.defined() || gradient.scalar_type() != average.scalar_type() ||
      Unshared(gradient, /*arriving=*/at::Tensor())) {
    gradient = average;
  } else {
    gradient.detach().copy_(average);
  }
}

std::vector<int> GradientBuckets::NonFinite(int index, const at::Tensor& content) const {
  const Bucket& bucket = buckets_[index];
  std::vector<int> found;
  if (!HasNonFinite(bucket.sparse ? content._values() : content)) return found;
  for (const int i : bucket.parameters) {
    if (bucket.sparse || HasNonFinite(places_[i].slot.tensor())) found.push_back(i);
  }
  return found;
}

void GradientBuckets::EndBackward() {
  for (Bucket& bucket : buckets_) {
    if (bucket.sparse) bucket.buffer = at::Tensor();
  }
  for (Place& place : places_) place.filled = false;
  if (requests_) SlotRequests::Activate(nullptr);
}

}  // namespace lockstep::ddp::internal
