// Opens files whose names come from outside without waiting for what is not a file.

#ifndef LOCKSTEP_BASE_REGULAR_FILE_H_
#define LOCKSTEP_BASE_REGULAR_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// Opens the file at `path`, links followed, for reading; the caller owns the descriptor, which is closed on exec. Never
// blocks on a FIFO. Errors do not name the path: the caller does. InvalidArgument for what is not a regular file:
// "expected a regular file, found a FIFO". Else what the system says: "cannot be opened: Permission denied".
absl::StatusOr<int> OpenRegularFile(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_REGULAR_FILE_H_
