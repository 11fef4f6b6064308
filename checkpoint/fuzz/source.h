// A fuzzer's input as a file.

#ifndef LOCKSTEP_CHECKPOINT_FUZZ_SOURCE_H_
#define LOCKSTEP_CHECKPOINT_FUZZ_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/tools/fuzz/require.h"

namespace lockstep::fuzz {

// Ends the fuzzer if a read goes past the end. `bytes` must outlive the source.
inline checkpoint::file::ByteSource SourceOf(const char* bytes, size_t size) {
  return {size, [=](uint64_t offset, void* to, size_t count) {
            Require(offset <= size && count <= size - offset, "a read stays within the file");
            if (count > 0) std::memcpy(to, bytes + offset, count);
            return absl::OkStatus();
          }};
}

}  // namespace lockstep::fuzz

#endif  // LOCKSTEP_CHECKPOINT_FUZZ_SOURCE_H_
