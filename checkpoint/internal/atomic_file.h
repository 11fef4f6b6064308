// Replaces a file in one step: writes a hidden temporary beside it, flushes that to the disk, renames it and flushes
// the directory.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create("/data/model.pt", true));
//   LOCKSTEP_RETURN_IF_ERROR(file->Append(bytes, count));
//   LOCKSTEP_RETURN_IF_ERROR(file->Commit());
//
// Until Commit succeeds the old file is as it was. The temporary is locked (flock) while its writer lives; Create
// removes those of the same path that nobody holds, so no process number has to be trusted, not even over a network.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_ATOMIC_FILE_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_ATOMIC_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/internal/block_writer.h"
#include "lockstep/checkpoint/internal/file_system.h"

namespace lockstep::checkpoint::internal {

class AtomicFile {
 public:
  // `sync`: flush to the disk, and so write past the page cache what is large. Errors are the system's.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path, bool sync,
                                                            FileSystem& system = FileSystem::Real());

  // Removes the temporary unless Commit renamed it.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Copies the bytes. An error may be that of writing what was appended before.
  absl::Status Append(const void* from, size_t count);

  // An error after the rename says so: the new file is then in place, and only its surviving a power failure is in
  // doubt.
  absl::Status Commit();

 private:
  AtomicFile(FileSystem& system, bool sync) : system_(system), sync_(sync) {}
  absl::Status OpenDirectory(const std::string& path);
  void RemoveStale() const;
  absl::Status OpenTemporary();

  FileSystem& system_;
  const bool sync_;
  int directory_ = -1;
  int file_ = -1;
  std::string name_;
  std::string temporary_;
  std::unique_ptr<BlockWriter> writer_;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_ATOMIC_FILE_H_
