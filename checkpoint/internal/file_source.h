// A file as a ByteSource.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_FILE_SOURCE_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_FILE_SOURCE_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/internal/byte_stream.h"

namespace lockstep::checkpoint::internal {

// Holds the file open as long as the source lives, so a rename over it does not disturb. Errors are the system's;
// InvalidArgument for what is no regular file.
absl::StatusOr<ByteSource> OpenFile(const std::string& path);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_FILE_SOURCE_H_
