#include "lockstep/checkpoint/internal/encoded_file.h"

#include <memory>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/internal/archive_writer.h"
#include "lockstep/checkpoint/internal/atomic_file.h"

namespace lockstep::checkpoint::internal {

absl::Status WriteEncodedFile(const std::string& path, const EncodedValue& encoded, const SaveOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, options.sync));
  LOCKSTEP_RETURN_IF_ERROR(WriteArchive([&](const void* from, size_t count) { return file->Append(from, count); },
                                        ArchiveNameOf(path), encoded));
  return file->Commit();
}

}  // namespace lockstep::checkpoint::internal
