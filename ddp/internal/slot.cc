#include "lockstep/ddp/internal/slot.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>

#include <utility>
#include <vector>

namespace lockstep::ddp::internal {
namespace {

std::vector<int64_t> Contiguous(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  return strides;
}

at::Tensor Over(const at::Tensor& buffer, void* data, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::from_blob(
      data, sizes, strides, [buffer](void*) {}, buffer.options(), buffer.device());
}

}  // namespace

Slot::Slot(const at::Tensor& buffer, int64_t offset, const at::Tensor& parameter) : buffer_(buffer) {
  const std::vector<int64_t> strides =
      parameter.is_non_overlapping_and_dense() ? parameter.strides().vec() : Contiguous(parameter.sizes());
  char* const data = static_cast<char*>(buffer.data_ptr()) + offset * buffer.itemsize();
  tensor_ = Over(buffer, data, parameter.sizes(), strides);
}

bool Slot::Holds(const at::Tensor& gradient) const { return gradient.is_alias_of(tensor_); }

void Slot::Reclaim() {
  if (tensor_.use_count() == 1 && tensor_.storage().use_count() == 1) return;
  const at::Tensor held = std::exchange(tensor_, Over(buffer_, tensor_.data_ptr(), tensor_.sizes(), tensor_.strides()));
  // All holders of the tensor and of its views share its storage: its memory is exchanged underneath them.
  const at::Tensor copy = tensor_.clone();
  held.storage().set_data_ptr_noswap(copy.storage().unsafeGetStorageImpl()->set_data_ptr({nullptr, buffer_.device()}));
}

}  // namespace lockstep::ddp::internal
