// Compares two checkpoints.

#ifndef LOCKSTEP_CHECKPOINT_INSPECT_DIFFERENCE_H_
#define LOCKSTEP_CHECKPOINT_INSPECT_DIFFERENCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::inspect {

// A line for each value that only one of them has, or whose dtype, shape, type, text or elements differ. Elements are
// compared by their bits, and the line gives their number and the largest difference. Devices, strides, sharing and
// order are ignored. Returns the errors of Leaves.
absl::StatusOr<std::vector<std::string>> Differences(const Value& a, const Value& b);

}  // namespace lockstep::checkpoint::inspect

#endif  // LOCKSTEP_CHECKPOINT_INSPECT_DIFFERENCE_H_
