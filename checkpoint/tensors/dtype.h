// The dtypes of plain tensors, by the names that .pt files give them, and their elements as bytes.

#ifndef LOCKSTEP_CHECKPOINT_TENSORS_DTYPE_H_
#define LOCKSTEP_CHECKPOINT_TENSORS_DTYPE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::checkpoint::tensors {

struct Dtype {
  at::ScalarType type;
  absl::string_view name;     // torch.`name`
  absl::string_view storage;  // torch.`storage`; empty for the newer dtypes, whose storages are untyped
};

// The dtype of a tensor whose elements can be saved. InvalidArgument: the tensor is undefined. Unimplemented: it is not
// a plain tensor with data, for example quantized, sparse or meta.
absl::StatusOr<const Dtype*> DtypeOf(const at::Tensor& tensor);

// Each returns nullptr if there is none.
const Dtype* FindDtype(at::ScalarType type);
const Dtype* FindDtypeNamed(absl::string_view name);
const Dtype* FindDtypeOfStorage(absl::string_view storage);

// The elements in order, contiguous, on the CPU, as integers of their size (complex128 stays complex128). Copies only
// if they are not in that form. Throws LibTorch's exceptions.
at::Tensor Elements(const at::Tensor& tensor);

}  // namespace lockstep::checkpoint::tensors

#endif  // LOCKSTEP_CHECKPOINT_TENSORS_DTYPE_H_
