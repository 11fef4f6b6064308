// Checks that a tensor's elements lie in its storage. Save and Load use the same check, so that Load accepts every
// tensor that Save wrote.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_BOUNDS_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_BOUNDS_H_

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace lockstep::checkpoint::archive {

// DataLoss: an element lies outside `storage_bytes`, or the numbers do not describe a tensor. Views that repeat
// elements (stride 0) are fine. A tensor without elements may have any offset and strides that are not negative:
// zeros({0, 4}).select(1, 3) begins behind its storage.
absl::Status CheckBounds(int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides, uint64_t storage_bytes,
                         size_t element_size);

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_BOUNDS_H_
