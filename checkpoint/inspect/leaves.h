// Lists the leaves of a value, each with its name.

#ifndef LOCKSTEP_CHECKPOINT_INSPECT_LEAVES_H_
#define LOCKSTEP_CHECKPOINT_INSPECT_LEAVES_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::inspect {

// A tensor, a scalar or an empty container. A sparse or quantized tensor has a leaf for each of its parts: "x.indices",
// "x.values", "x.int_repr", "x.scale".
struct Leaf {
  // Keys and indices, joined by dots: "optimizer.param_groups.0.lr". If a name occurs again, " (2)" is appended. Keys
  // with dots cause that, and the keys 3 and "3".
  std::string name;
  Value value;
};

// In order. ResourceExhausted: a small file would expand without limit, to over a million leaves in containers that
// occur several times, or over 256 MiB of names.
absl::StatusOr<std::vector<Leaf>> Leaves(const Value& value);

// Without the tensors' elements: "float32 [3, 2]", "int 3", "str \"adam\"", "dict of 0".
std::string Short(const Value& value);

// "float32", ...
std::string DtypeName(const at::Tensor& tensor);

}  // namespace lockstep::checkpoint::inspect

#endif  // LOCKSTEP_CHECKPOINT_INSPECT_LEAVES_H_
