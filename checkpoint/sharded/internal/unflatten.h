// The nested state dict that flattened entries came from.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_UNFLATTEN_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_UNFLATTEN_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::internal {

struct PathAndValue {
  std::vector<Value> path;  // strings and ints, at least one
  Value value;
};

// Dicts are in the order of the entries. As in Python, an index without an entry is None. ResourceExhausted: there are
// more than `most_holes` of those. DataLoss: one position is both a value and a container, or both a list and a dict.
absl::StatusOr<Value> Unflatten(const std::vector<PathAndValue>& entries, size_t most_holes);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_UNFLATTEN_H_
