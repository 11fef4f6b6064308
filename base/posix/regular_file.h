// Opens files with names from outside, without blocking on FIFOs and devices.

#ifndef LOCKSTEP_BASE_POSIX_REGULAR_FILE_H_
#define LOCKSTEP_BASE_POSIX_REGULAR_FILE_H_

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep {

// Opens the file at `path` for reading. Links are followed. The descriptor is closed on exec. Never blocks on a FIFO.
// Errors do not name the path; the caller should. InvalidArgument: it is not a regular file:
// "expected a regular file, found a FIFO". Other errors are the system's: "cannot be opened: Permission denied".
absl::StatusOr<UniqueFd> OpenRegularFile(const std::string& path);

// InvalidArgument, as above, unless `status` is a regular file's.
absl::Status CheckRegular(const struct stat& status);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_REGULAR_FILE_H_
