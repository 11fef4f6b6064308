// Values and tensors of the Python objects that are more than plain data: complex numbers, numpy's scalars and arrays,
// sparse and quantized tensors. A pickle describes them as calls; see pickle/graph.h.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_OBJECTS_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_OBJECTS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pickle/globals.h"
#include "lockstep/checkpoint/pickle/graph.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::archive {

// The classes and functions that such objects are made of, for the reader of the pickle.
const pickle::PickleClasses& ObjectClasses();

// Sparse and quantized tensors are made of other tensors and of a storage.
bool IsSparse(const pickle::PickleObject& object);
bool IsQuantized(const pickle::PickleObject& object);

// Any other object. A complex number is a complex128 tensor without dimensions. A scalar of numpy is a bool, int or
// float, or as a complex number. An array of numpy is a tensor on the CPU, in its order of elements. A numpy dtype is a
// str, such as "<f8". DataLoss: the description is not numpy's. Unimplemented: a dtype without a tensor's.
absl::StatusOr<Value> MakeConstant(const pickle::PickleGraph& graph, const pickle::PickleObject& object);

// A tensor of the layout "torch.sparse_coo" or another sparse one. `parts`: the indices, the values, the size and
// whether it is coalesced; or the compressed indices, the plain ones, the values and the size. The parts have their
// contents already. DataLoss: they do not fit.
absl::StatusOr<at::Tensor> MakeSparse(absl::string_view layout, const std::vector<Value>& parts);

// Requires: CheckBounds accepts it.
struct QuantizedView {
  c10::Storage storage;
  at::ScalarType type = at::kQInt8;
  int64_t offset = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

// The dtype of a quantized storage such as "QInt8Storage"; Undefined if it is another.
at::ScalarType QuantizedType(absl::string_view storage);

// `parameters`: the scheme, and its scale and zero point, or its scales, zero points and axis. DataLoss: they do not
// fit.
absl::StatusOr<at::Tensor> MakeQuantized(const QuantizedView& view, const std::vector<Value>& parameters);

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_OBJECTS_H_
