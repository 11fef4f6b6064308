// Where an archive's bytes come from and go to, as function objects, so that tests and fuzzers need no files.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_BYTE_STREAM_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace lockstep::checkpoint::internal {

// Random access. `read` fills exactly `count` bytes from `offset` or fails; it may be called from several threads.
struct ByteSource {
  uint64_t size = 0;
  std::function<absl::Status(uint64_t offset, void* to, size_t count)> read;
};

// Appends all `count` bytes or fails.
using ByteSink = std::function<absl::Status(const void* from, size_t count)>;

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_BYTE_STREAM_H_
