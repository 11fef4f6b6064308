// Where two checkpoints differ.

#ifndef LOCKSTEP_CHECKPOINT_INSPECT_DIFFERENCE_H_
#define LOCKSTEP_CHECKPOINT_INSPECT_DIFFERENCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::inspect {

// A line for each value that is in one of the two only, has another dtype, shape, type or text, or other elements (by
// their bits: how many, and the largest difference); none where all are the same. Devices, strides, sharing and order
// do not count. Errors are those of Leaves.
absl::StatusOr<std::vector<std::string>> Differences(const Value& a, const Value& b);

}  // namespace lockstep::checkpoint::inspect

#endif  // LOCKSTEP_CHECKPOINT_INSPECT_DIFFERENCE_H_
