#include "lockstep/data/internal/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::data::internal {
namespace {

at::MemoryFormat FormatOfBatch(const at::Tensor& example) {
  const bool channels_last =
      example.dim() == 3 && !example.is_contiguous() && example.permute({1, 2, 0}).is_contiguous();
  return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

c10::Stream StreamOn(c10::Device device) {
  const c10::impl::VirtualGuardImpl accelerator(device.type());
  return accelerator.getStreamFromGlobalPool(device.has_index() ? device : accelerator.getDevice());
}

}  // namespace

at::Tensor BatchMemory::Stack(const at::Tensor& example, int64_t count) {
  std::vector<int64_t> sizes = {count};
  sizes.insert(sizes.end(), example.sizes().begin(), example.sizes().end());
  const at::TensorOptions options = example.options().pinned_memory(pin_memory_);
  return pin_memory_ ? at::empty(sizes, options, FormatOfBatch(example)) : Kept(sizes, options, FormatOfBatch(example));
}

// Allocates memory for `fresh` only if it is returned. No memory is touched before a batch is written.
at::Tensor BatchMemory::Kept(at::IntArrayRef sizes, const at::TensorOptions& options, at::MemoryFormat format) {
  at::Tensor fresh = at::empty(sizes, options, format);
  for (c10::Storage& storage : kept_) {
    if (storage.use_count() == 1 && storage.nbytes() == fresh.storage().nbytes())
      return fresh.set_(storage, 0, fresh.sizes(), fresh.strides());
  }
  kept_.push_back(fresh.storage());
  if (kept_.size() > most_) kept_.pop_front();
  return fresh;
}

void BatchInProgress::Allocate(const Example& example, BatchMemory& memory) {
  data_ = memory.Stack(example.data, size());
  target_ = memory.Stack(example.target, size());
}

void BatchInProgress::Fill(size_t place, const Dataset& dataset, at::Generator& random) {
  const absl::Status thrown = TorchStatus(absl::StrCat("example ", index(place)), [&] {
    at::Tensor data = data_.select(0, place), target = target_.select(0, place);
    errors_[place] = dataset.GetInto(index(place), random, data, target);
  });
  if (!thrown.ok()) errors_[place] = thrown;
}

Example BatchInProgress::Take() {
  if (!data_.defined()) return {at::Tensor(), at::Tensor()};
  std::vector<int64_t> good;
  for (size_t place = 0; place < size(); ++place)
    if (errors_[place].ok()) good.push_back(place);
  if (good.empty()) return {at::Tensor(), at::Tensor()};
  if (good.size() == size()) return {data_, target_};
  const at::Tensor places = at::tensor(good);
  return {data_.index_select(0, places), target_.index_select(0, places)};
}

DeviceCopy::DeviceCopy(c10::Device device) : stream_(StreamOn(device)) {}

Example DeviceCopy::operator()(const Example& batch) const {
  const c10::Device device = stream_.device();
  const c10::Stream user = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  Example copy;
  {
    const c10::StreamGuard guard(stream_);
    copy = {batch.data.to(device, /*non_blocking=*/true), batch.target.to(device, /*non_blocking=*/true)};
  }
  c10::Event copied(device.type());
  copied.record(stream_);
  copied.block(user);
  // The memory belongs to the copying stream. It must not be used there again before the user's stream has finished
  // with it.
  copy.data.record_stream(user);
  copy.target.record_stream(user);
  return copy;
}

}  // namespace lockstep::data::internal
