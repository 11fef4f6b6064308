// torch.save's format before PyTorch 1.6, which _use_new_zipfile_serialization=False still writes: five pickles (a
// magic number, a version, the writer's system, the value, the storages' keys), then each storage's length and bytes.
//
// It has no checksums. These are checked: the order and the contents of the pickles, that each storage of the value has
// its bytes and no other has, the lengths, and that the file ends behind the last storage. So a truncation and a
// flipped bit in a length are found; a flipped bit in an element is not, and one in a name or a number may not be.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_LEGACY_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_LEGACY_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/pickle/globals.h"
#include "lockstep/checkpoint/pickle/graph.h"
#include "lockstep/checkpoint/zip/reader.h"

namespace lockstep::checkpoint::archive {

// Returns whether `source` begins with the format's magic number.
absl::StatusOr<bool> IsLegacy(const file::ByteSource& source);

struct LegacyFile {
  std::unique_ptr<std::string> pickle;  // the graph refers to it
  pickle::PickleGraph graph;
  // The storages, as records named legacy/data/`key`, without checksums.
  std::vector<zip::ZipRecord> records;
};

inline constexpr char kLegacyArchive[] = "legacy";

// Reads all but the storages. It may use `memory_limit` bytes and 256 times the size of the pickles. Errors are Load's.
absl::StatusOr<LegacyFile> ReadLegacy(const file::ByteSource& source, size_t memory_limit,
                                      const pickle::PickleClasses& classes);

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_LEGACY_H_
