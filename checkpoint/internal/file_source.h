// A file as a ByteSource.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_FILE_SOURCE_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_FILE_SOURCE_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/internal/byte_stream.h"

namespace lockstep::checkpoint::internal {

// Keeps the file open as long as the source lives, so a rename over it has no effect. Errors are the system's.
// InvalidArgument: it is not a regular file.
absl::StatusOr<ByteSource> OpenFile(const std::string& path);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_FILE_SOURCE_H_
