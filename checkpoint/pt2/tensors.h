// Tensors over the bytes of a record, as the payload configuration of a .pt2 archive describes them.

#ifndef LOCKSTEP_CHECKPOINT_PT2_TENSORS_H_
#define LOCKSTEP_CHECKPOINT_PT2_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/pt2/payload.h"

namespace lockstep::checkpoint::pt2 {

struct StoredTensor {
  Payload payload;
  int64_t record_bytes = 0;
  // Payloads that Python tied are one tensor.
  at::Tensor tensor = {};
};

// The dtype that the schema numbers so. Unimplemented: there is none.
absl::StatusOr<c10::ScalarType> DtypeOfSchema(int64_t number);

// The device that the program names, unless `moved` replaces it. DataLoss: there is no such device type.
absl::StatusOr<c10::Device> DeviceOfSchema(const std::string& type, int64_t index, std::optional<c10::Device> moved);

// A view of `bytes`, a tensor of uint8 with the whole record, that shares its memory. An empty record stands for a
// tensor without elements. DataLoss: the tensor does not fit into the record. Unimplemented: it is sparse, pickled, or
// of an unknown dtype.
absl::StatusOr<at::Tensor> ViewOf(const at::Tensor& bytes, const Payload& payload);

// Describes a strided tensor on the CPU; the inverse of ViewOf. Unimplemented: it has another layout, or its dtype is
// not in the schema.
absl::StatusOr<TensorMeta> MetaOf(const at::Tensor& tensor);

}  // namespace lockstep::checkpoint::pt2

#endif  // LOCKSTEP_CHECKPOINT_PT2_TENSORS_H_
