#include "lockstep/checkpoint/deferred/tensors.h"

#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/accumulate.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint {
namespace {

at::Tensor ViewOf(const c10::Storage& storage, at::ScalarType dtype, int64_t offset, at::IntArrayRef sizes,
                  at::IntArrayRef strides) {
  return at::empty({0}, dtype).set_(storage, offset, sizes, strides);
}

}  // namespace

c10::Storage DeferredTensors::AddStorage(size_t bytes, Fetch fetch) {
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, c10::kCPU),
                             /*allocator=*/nullptr, /*resizable=*/false);
  fetches_.emplace(storage.unsafeGetStorageImpl(), Source{storage, std::move(fetch)});
  return storage;
}

at::Tensor DeferredTensors::Add(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, Fetch fetch) {
  const size_t bytes = c10::multiply_integers(sizes) * c10::elementSize(dtype);
  return ViewOf(AddStorage(bytes, std::move(fetch)), dtype, 0, sizes, strides);
}

absl::StatusOr<at::Tensor> DeferredTensors::Bytes(const c10::Storage& storage) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor bytes, fetches_.at(storage.unsafeGetStorageImpl()).fetch());
  if (bytes.nbytes() == storage.nbytes() && bytes.is_contiguous() && bytes.is_cpu()) return bytes;
  return absl::InternalError(
      absl::StrCat("expected ", storage.nbytes(), " contiguous bytes of a tensor, found ", bytes.nbytes()));
}

absl::StatusOr<at::Tensor> DeferredTensors::Get(const at::Tensor& tensor) const {
  if (!Has(tensor.storage())) return tensor;
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor bytes, Bytes(tensor.storage()));
  return TorchStatusOr("", [&] {
    const int64_t first = bytes.storage_offset() * bytes.element_size() / tensor.element_size();
    at::Tensor filled = ViewOf(bytes.storage(), tensor.scalar_type(), first + tensor.storage_offset(), tensor.sizes(),
                               tensor.strides());
    filled.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
    filled.unsafeGetTensorImpl()->_set_neg(tensor.is_neg());
    return filled;
  });
}

}  // namespace lockstep::checkpoint
