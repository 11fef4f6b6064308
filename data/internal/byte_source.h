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

namespace lockstep::data {

// The bytes of a file from its start to its end, inflated where the file starts as gzip does. Holds 64 KiB of the file
// at a time. Errors do not name the file: the caller does. For one thread.
class ByteSource {
 public:
  // An error where the file cannot be opened, is not a regular one, or its first bytes cannot be read.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(absl::string_view path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Puts up to `size` bytes at `out` and returns how many: fewer only at the end, 0 from then on. The end is only ever
  // reported after gzip's checksum held and nothing followed it in the file (several gzip members in a row are one
  // stream, as for gunzip). DataLoss where the gzip data is truncated, damaged or followed by something else.
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
  z_stream stream_ = {};  // next_in and avail_in are what is left of buffer_, for plain files too.
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_INTERNAL_BYTE_SOURCE_H_
