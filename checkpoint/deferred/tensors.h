// Tensors whose elements are not in memory, so that a file is written or read with the elements of one at a time.

#ifndef LOCKSTEP_CHECKPOINT_DEFERRED_TENSORS_H_
#define LOCKSTEP_CHECKPOINT_DEFERRED_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace lockstep::checkpoint {

//   DeferredTensors deferred;
//   const at::Tensor tensor = deferred.Add(tensor_with_sizes_and_strides, [] { return BringElements(); });
//   SaveDeferred("large.pt", Value::Dict({{"weight", tensor}}), deferred);
//
// A deferred tensor has a shape, strides, a dtype and its own storage, without memory. No operator may read it.
class DeferredTensors {
 public:
  // Returns a storage's bytes, as a contiguous tensor of any dtype on the CPU.
  using Fetch = std::function<absl::StatusOr<at::Tensor>()>;

  // Returns a deferred tensor with the sizes, strides and dtype of a dense tensor, which need not have memory.
  at::Tensor Add(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, Fetch fetch);
  // Returns a storage of `bytes` bytes.
  c10::Storage AddStorage(size_t bytes, Fetch fetch);

  bool Has(const c10::Storage& storage) const { return fetches_.contains(storage.unsafeGetStorageImpl()); }
  // The bytes of a storage of this object. Errors are the fetch's. Internal: it has another number of bytes.
  absl::StatusOr<at::Tensor> Bytes(const c10::Storage& storage) const;
  // `tensor` with its elements; itself if it is not one of these.
  absl::StatusOr<at::Tensor> Get(const at::Tensor& tensor) const;

 private:
  struct Source {
    c10::Storage storage;  // kept, so that its address names it
    Fetch fetch;
  };
  absl::flat_hash_map<const c10::StorageImpl*, Source> fetches_;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_DEFERRED_TENSORS_H_
