// Replaces a file in one step: writes a hidden temporary file beside it, flushes that to the disk, renames it and
// flushes the directory.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create("/data/model.pt", true));
//   LOCKSTEP_RETURN_IF_ERROR(file->Append(bytes, count));
//   LOCKSTEP_RETURN_IF_ERROR(file->Commit());
//
// Until Commit succeeds the old file is unchanged. The temporary file is locked (flock) while its writer lives. Create
// removes unlocked temporary files of the same path, so it does not depend on process numbers, not even over a network.

#ifndef LOCKSTEP_CHECKPOINT_FILE_ATOMIC_FILE_H_
#define LOCKSTEP_CHECKPOINT_FILE_ATOMIC_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/file/block_writer.h"
#include "lockstep/checkpoint/file/file_system.h"

namespace lockstep::checkpoint::file {

class AtomicFile {
 public:
  // `sync`: flushes to the disk, and writes large data past the page cache. InvalidArgument: the path is a
  // device, a FIFO or a socket, which stays. Other errors are the system's.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path, bool sync,
                                                            FileSystem& system = FileSystem::Real());

  // Removes the temporary unless Commit renamed it.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Copies the bytes. May return the error of an earlier write.
  absl::Status Append(const void* from, size_t count);

  // If an error occurs after the rename, it says so: the new file is then in place, but may not survive a power
  // failure.
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

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_ATOMIC_FILE_H_
