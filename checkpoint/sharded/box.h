// Rectangular parts of a tensor.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_BOX_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_BOX_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"

namespace lockstep::checkpoint {

// offsets[d] to offsets[d] + sizes[d] in each dimension d. Of a tensor without dimensions the only box has none either,
// and holds its one element.
struct Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
};

bool operator==(const Box& a, const Box& b);

namespace internal {

// The whole of a tensor.
Box WholeBox(std::vector<int64_t> sizes);

// DataLoss for a negative size, more than 64 dimensions, or more than INT64_MAX / 16 elements, so that neither these
// nor their bytes overflow.
absl::Status CheckSizes(const std::vector<int64_t>& sizes);

// DataLoss where `box` is no part of a tensor of these sizes, which CheckSizes has checked.
absl::Status CheckInside(const Box& box, const std::vector<int64_t>& sizes);

// How many elements. Requires: checked.
int64_t ElementsOf(const std::vector<int64_t>& sizes);

// What two boxes of one tensor share; nothing where that is no element.
absl::optional<Box> Intersect(const Box& a, const Box& b);

// Two boxes that share an element, by their places in `boxes`, if there are any. Takes O(n log n) for slices along one
// dimension: boxes are passed in the order of the dimension that is cut finest, and compared with those not yet passed.
absl::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Box>& boxes);

// "[4, 3]", and "[4, 3] at [0, 2]".
std::string ToString(const std::vector<int64_t>& sizes);
std::string ToString(const Box& box);

}  // namespace internal
}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_BOX_H_
