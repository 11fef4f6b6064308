// Writes a zip archive of uncompressed records in PyTorch's layout: data aligned to 64 bytes, a CRC-32 after each
// record, and zip64 if a size or an offset needs it.
//
//   ZipWriter zip(sink, "model");
//   zip.Add("version", "3\n");
//   zip.Begin("data/0", size); zip.Append(...); zip.Append(...); zip.End();
//   zip.Finish();
//
// Errors are the sink's. After an error the archive is invalid.

#ifndef LOCKSTEP_CHECKPOINT_ZIP_WRITER_H_
#define LOCKSTEP_CHECKPOINT_ZIP_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/file/byte_stream.h"

namespace lockstep::checkpoint::zip {

class ZipWriter {
 public:
  // Records are named `archive`/name.
  ZipWriter(file::ByteSink sink, std::string archive);

  // A whole record.
  absl::Status Add(absl::string_view name, absl::string_view contents);

  // A record in pieces: Begin, Append until `size` bytes are there, End.
  absl::Status Begin(absl::string_view name, uint64_t size);
  absl::Status Append(const void* from, size_t count);
  absl::Status End();

  // The directory. The writer is then done.
  absl::Status Finish();

  // A hash of all names and CRCs so far, in 40 decimal digits: what PyTorch calls a serialization id.
  std::string Fingerprint() const;

 private:
  struct Entry {
    std::string name;
    uint64_t offset = 0;
    uint64_t size = 0;
    uint32_t crc32 = 0;
  };

  absl::Status Write(const std::string& bytes);

  file::ByteSink sink_;
  std::string archive_;
  std::vector<Entry> entries_;
  uint64_t position_ = 0;
  uint64_t appended_ = 0;
};

}  // namespace lockstep::checkpoint::zip

#endif  // LOCKSTEP_CHECKPOINT_ZIP_WRITER_H_
