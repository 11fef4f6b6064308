#ifndef LOCKSTEP_DATA_INTERNAL_BYTE_SOURCE_H_
#define LOCKSTEP_DATA_INTERNAL_BYTE_SOURCE_H_

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::data::internal {

// The bytes of a file from start to end, inflated if the file starts as gzip. Holds 64 KiB of the file at a time.
// Errors do not name the file; the caller should. Not thread-safe.
class ByteSource {
 public:
  // Returns an error if the file cannot be opened, is not a regular file, or its first bytes cannot be read.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(absl::string_view path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Writes up to `size` bytes to `out` and returns how many: fewer only at the end, and 0 afterwards. The end is
  // reported only after gzip's checksum matched and nothing follows it in the file (several gzip members in sequence
  // are one stream, as for gunzip). DataLoss: the gzip data is truncated, damaged or followed by other data.
  absl::StatusOr<size_t> Read(uint8_t* out, size_t size);

 private:
  ByteSource() = default;

  absl::Status Start(const std::string& path);
  absl::Status Refill();
  absl::StatusOr<size_t> ReadPlain(uint8_t* out, size_t size);
  absl::StatusOr<size_t> ReadGzip(uint8_t* out, size_t size);
  absl::Status EndOfMember();

  std::FILE* file_ = nullptr;
  std::vector<uint8_t> buffer_;
  bool gzip_ = false;
  bool ended_ = false;    // The last gzip member has ended.
  z_stream stream_ = {};  // next_in and avail_in are the unread part of buffer_, for plain files too
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_BYTE_SOURCE_H_
