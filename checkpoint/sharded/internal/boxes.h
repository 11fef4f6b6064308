// Parts of tensors, as boxes: checks and geometry.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_BOXES_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_BOXES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/checkpoint/sharded/box.h"

namespace lockstep::checkpoint::internal {

// The whole of a tensor.
Box WholeBox(std::vector<int64_t> sizes);

// DataLoss: a size is negative, or there are more than 64 dimensions or more than INT64_MAX / 16 elements. So neither
// the number of elements nor that of bytes overflows.
absl::Status CheckSizes(const std::vector<int64_t>& sizes);

// DataLoss: `box` is not a part of a tensor of these sizes. Requires: CheckSizes(sizes) is OK.
absl::Status CheckInside(const Box& box, const std::vector<int64_t>& sizes);

// The number of elements. Requires: CheckSizes(sizes) is OK.
int64_t ElementsOf(const std::vector<int64_t>& sizes);

// The intersection of two boxes of one tensor, or nullopt if it is empty.
std::optional<Box> Intersect(const Box& a, const Box& b);

// The indices of two overlapping boxes in `boxes`, or nullopt. Takes O(n log n) for slices along one dimension: it
// sweeps along the dimension with the most cuts, and compares each box only with the boxes that the sweep has not
// passed yet.
std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Box>& boxes);

// "[4, 3]", and "[4, 3] at [0, 2]".
std::string ToString(const std::vector<int64_t>& sizes);
std::string ToString(const Box& box);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_BOXES_H_
