// Reads any bytes as a file in torch.save's legacy format. Accepted storages lie in the file, in order, and end with
// it.

#include <cstdint>

#include "lockstep/checkpoint/archive/legacy.h"
#include "lockstep/checkpoint/fuzz/source.h"
#include "lockstep/checkpoint/pickle/reader.h"
#include "lockstep/tools/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::checkpoint;  // NOLINT(google-build-using-namespace)
  const char* const bytes = reinterpret_cast<const char*>(data);
  const auto file = archive::ReadLegacy(lockstep::fuzz::SourceOf(bytes, size), size_t{8} << 20, {{"numpy", "dtype"}});
  if (!file.ok()) return 0;
  uint64_t end = 0;
  for (const zip::ZipRecord& record : file->records) {
    lockstep::fuzz::Require(record.header >= end, "storages are in order");
    lockstep::fuzz::Require(record.offset == record.header + sizeof(int64_t), "a length stands before its storage");
    end = record.offset + record.size;
  }
  lockstep::fuzz::Require(file->records.empty() || end == size, "the last storage ends with the file");
  pickle::CheckRefused(file->graph).IgnoreError();
  return 0;
}
