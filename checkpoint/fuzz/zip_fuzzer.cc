// Reads any bytes as a zip archive. Accepted records lie inside the bytes, and reading them returns data or an error.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/checkpoint/fuzz/source.h"
#include "lockstep/checkpoint/zip/reader.h"
#include "lockstep/tools/fuzz/require.h"

namespace lockstep::checkpoint::zip {
namespace {

void CheckRecords(const ZipReader& zip, size_t size) {
  uint64_t end = 0;
  for (const ZipRecord& record : zip.records()) {
    fuzz::Require(record.header >= end, "records do not overlap");
    end = record.offset + record.size;
    fuzz::Require(record.offset > record.header && end <= size, "a record lies within the file");
    fuzz::Require(zip.Find(record.name) == &record, "a record is found by its name");
  }
}

// Reads all together, and then one by one. Both must agree.
void ReadRecords(const ZipReader& zip) {
  std::vector<ZipRead> reads;
  for (const ZipRecord& record : zip.records()) reads.push_back({&record});
  zip.ReadAll(reads, true);
  for (const ZipRead& read : reads) {
    std::string contents(read.record->size, '\0');
    fuzz::Require(zip.Read(*read.record, &contents[0], true) == read.status, "both ways of reading agree");
    fuzz::Require(zip.Read(*read.record, &contents[0], false).ok() != read.record->compressed,
                  "unchecked reading succeeds where the record is not compressed");
  }
}

}  // namespace
}  // namespace lockstep::checkpoint::zip

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::checkpoint::zip;  // NOLINT(google-build-using-namespace)
  const auto zip = ZipReader::Open(lockstep::fuzz::SourceOf(reinterpret_cast<const char*>(data), size));
  if (!zip.ok()) return 0;
  CheckRecords(*zip, size);
  ReadRecords(*zip);
  return 0;
}
