// Gradients on their way into buckets and out of them.

#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/bucket.h"
#include "lockstep/ddp/internal/kernels.h"
#include "lockstep/ddp/internal/reducer.h"

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

}  // namespace

at::Tensor EmptySparse(const at::Tensor& like) {
  std::vector<int64_t> no_rows = like.sizes().vec();
  no_rows[0] = 0;
  const at::TensorOptions options = like.options().requires_grad(false);
  return at::sparse_coo_tensor(at::empty({1, 0}, options.dtype(at::kLong)), at::empty(no_rows, options), like.sizes());
}

void Reducer::CopyIntoSlot(int index, bool used) {
  const c10::NoGradGuard no_grad;
  Slot& slot = states_[index].slot;
  const bool divide = !hook_ && Divisor() != 1 && !DividedInSum(buckets_[states_[index].bucket]);
  if (states_[index].birthplace && BornInPlace(index)) {
    if (divide) Scale(slot.tensor(), slot.tensor(), 1.0 / Divisor());
    return;
  }
  const at::Tensor& gradient = parameters_[index].tensor.grad();
  const bool in_place = gradient.defined() && slot.Holds(gradient);
  // One that this step did not use keeps what it has if nobody used it.
  if (!in_place || !used) slot.Reclaim();
  const at::Tensor& place = slot.tensor();
  if (!gradient.defined()) {
    place.zero_();
  } else if (in_place && used) {
    if (divide && options_.gradient_as_bucket_view) {
      place.div_(Divisor());
    } else if (divide) {
      Scale(place, place, 1.0 / Divisor());
    }
  } else if (!divide || place.scalar_type() != gradient.scalar_type()) {
    Copy(place, gradient);
    if (divide) place.div_(Divisor());
  } else {
    Scale(place, gradient, 1.0 / Divisor());
  }
}

// Gives whatever lives in the slots memory of its own. Returns the parameters whose gradients these are.
std::vector<int> Reducer::MoveGradientsOut() {
  std::vector<int> moved;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Slot& slot = states_[i].slot;
    if (!slot.tensor().defined()) continue;
    const at::Tensor& gradient = parameters_[i].tensor.grad();
    if (gradient.defined() && slot.Holds(gradient)) moved.push_back(static_cast<int>(i));
    slot.Reclaim();
  }
  return moved;
}

void Reducer::MoveGradientsIn(const std::vector<int>& parameters) {
  for (const int i : parameters) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!options_.gradient_as_bucket_view && !Unshared(gradient, arriving_)) continue;
    Copy(states_[i].slot.tensor(), gradient);
    gradient = states_[i].slot.tensor();
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
  const bool usable = gradient.defined() && gradient.layout() == at::kStrided &&
                      gradient.strides() == place.strides() && gradient.scalar_type() == place.scalar_type() &&
                      Unshared(gradient, arriving_);
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
    bucket.buffer = gradient.detach().div(Divisor());  // not coalesced yet, as in Python: the bits differ
  }
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

}  // namespace lockstep::ddp::internal
