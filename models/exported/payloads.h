// Tensors over the bytes of a record, as the payload configuration of a .pt2 archive describes them.

#ifndef LOCKSTEP_MODELS_EXPORTED_PAYLOADS_H_
#define LOCKSTEP_MODELS_EXPORTED_PAYLOADS_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

// A view of `bytes`, a tensor of uint8 with the whole record, that shares its memory. An empty record stands for a
// tensor without elements. DataLoss: the tensor does not fit into the record. Unimplemented: it is sparse, pickled, or
// of an unknown dtype.
absl::StatusOr<at::Tensor> ViewOf(const at::Tensor& bytes, const Payload& payload);

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_PAYLOADS_H_
