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

// Dicts in the entries' order. An index that no entry has is None, as in Python; ResourceExhausted where there are more
// than `most_holes` of those. DataLoss where one place is a value and a container, or a list and a dict.
absl::StatusOr<Value> Unflatten(const std::vector<PathAndValue>& entries, size_t most_holes);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_UNFLATTEN_H_
