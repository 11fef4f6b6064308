// Reads a zip archive of stored records, trusting nothing: every offset and size is checked against the file, records
// may not overlap, and a record's local header must agree with the directory.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const ZipReader zip, ZipReader::Open(source));
//   LOCKSTEP_RETURN_IF_ERROR(zip.Read(*zip.Find("model/version"), &text[0], true));

#ifndef LOCKSTEP_CHECKPOINT_ZIP_READER_H_
#define LOCKSTEP_CHECKPOINT_ZIP_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/file/byte_stream.h"

namespace lockstep::checkpoint::zip {

struct ZipRecord {
  std::string name;
  uint64_t header = 0;  // where its local header begins
  uint64_t offset = 0;  // where its data begins
  uint64_t size = 0;
  uint32_t crc32 = 0;
  bool compressed = false;  // its data cannot be read
};

// One of several records to read.
struct ZipRead {
  const ZipRecord* record = nullptr;
  // Has record->size bytes; null to check the record only.
  char* to = nullptr;
  // The result.
  absl::Status status = {};
};

class ZipReader {
 public:
  // DataLoss: no archive, a truncated or a contradictory one. Unimplemented: encrypted or split over several files.
  static absl::StatusOr<ZipReader> Open(file::ByteSource source);

  // A reader of `records`, whose names and places in `source` are known from elsewhere; they have no CRC-32. Requires:
  // they are inside it, in order, and do not overlap.
  static ZipReader OfRecords(file::ByteSource source, std::vector<ZipRecord> records);

  // In the order of the file's bytes.
  const std::vector<ZipRecord>& records() const { return records_; }

  // nullptr if it does not exist.
  const ZipRecord* Find(absl::string_view name) const;

  // Reads all record.size bytes. Unimplemented: the record is compressed. DataLoss, with `verify`: their CRC-32 is not
  // that of the directory.
  absl::Status Read(const ZipRecord& record, void* to, bool verify) const;

  // Reads them all, in pieces that as many threads take as the processor has, eight at most. Takes some KiB a thread.
  void ReadAll(std::vector<ZipRead>& reads, bool verify) const;

 private:
  absl::Status ReadDirectory();
  absl::Status AddRecord(absl::string_view directory, size_t& at, uint64_t directory_offset);
  absl::Status FindData(ZipRecord& record, uint64_t limit) const;
  absl::Status CheckOrder(uint64_t limit);
  absl::StatusOr<uint32_t> ReadPart(const ZipRecord& record, uint64_t begin, uint64_t count, char* to,
                                    bool verify) const;

  file::ByteSource source_;
  std::vector<ZipRecord> records_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

}  // namespace lockstep::checkpoint::zip

#endif  // LOCKSTEP_CHECKPOINT_ZIP_READER_H_
