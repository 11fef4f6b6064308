#include "lockstep/data/internal/batch_memory.h"

#include <ATen/ops/empty.h>

#include <vector>

namespace lockstep::data::internal {
namespace {

at::MemoryFormat FormatOfBatch(const at::Tensor& example) {
  const bool channels_last =
      example.dim() == 3 && !example.is_contiguous() && example.permute({1, 2, 0}).is_contiguous();
  return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
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

}  // namespace lockstep::data::internal
