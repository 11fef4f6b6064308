// The origin and the destination of a file's bytes, as function objects, so that tests and fuzzers need no files.

#ifndef LOCKSTEP_CHECKPOINT_FILE_BYTE_STREAM_H_
#define LOCKSTEP_CHECKPOINT_FILE_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::checkpoint::file {

// Random access. `read` fills exactly `count` bytes from `offset` or fails; it may be called from several threads.
struct ByteSource {
  uint64_t size = 0;
  std::function<absl::Status(uint64_t offset, void* to, size_t count)> read;
};

// Appends all `count` bytes or fails.
using ByteSink = std::function<absl::Status(const void* from, size_t count)>;

// Keeps the file open as long as the source lives, so a rename over it has no effect. Errors are the system's.
// InvalidArgument: it is not a regular file.
absl::StatusOr<ByteSource> OpenFile(const std::string& path);

// Returns all bytes of the file. Errors are OpenFile()'s. DataLoss: it has more than `most_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t most_bytes);

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_BYTE_STREAM_H_
