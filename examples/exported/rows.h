// The rows that a network is trained on.

#ifndef LOCKSTEP_EXAMPLES_EXPORTED_ROWS_H_
#define LOCKSTEP_EXAMPLES_EXPORTED_ROWS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::examples {

struct Rows {
  std::vector<at::Tensor> inputs;  // one for each argument of the network, with equally many rows
  at::Tensor targets;              // as many rows, or undefined

  int64_t size() const { return inputs[0].size(0); }
  // Copies the rows from `first` on. After the last row comes the first one.
  Rows Part(int64_t first, int64_t count) const;
  // Returns dtypes and shapes: "inputs float [8, 3] and targets int [8]".
  std::string ToString() const;
};

// Reads what Python's torch.save({"inputs": [tensor, ...], "targets": tensor}, path) wrote; the targets only if
// `with_targets`. Returns the errors of checkpoint::Load(). NotFound or InvalidArgument, naming `path`: the file has no
// such entries, or the tensors have no rows or not equally many.
absl::StatusOr<Rows> ReadRows(const std::string& path, bool with_targets);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_EXPORTED_ROWS_H_
