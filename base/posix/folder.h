// Makes folders, makes their new entries last, and lists them.

#ifndef LOCKSTEP_BASE_POSIX_FOLDER_H_
#define LOCKSTEP_BASE_POSIX_FOLDER_H_

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// The folder at which a call failed, and the errno.
struct FolderError {
  std::string folder;
  int error = 0;
};

// Makes the folder at `path`, and those above it that do not exist, with mode 0777 less the umask. Other processes may
// make them at the same time. `lasting` flushes the folder above each new one, so that a power failure does not take
// them away. For "/runs/1/best", where /runs/1 is a file, the error is {"/runs/1", ENOTDIR}:
//
//   if (const auto failed = MakeFolders(path)) {
//     return absl::ErrnoToStatus(failed->error, absl::StrCat("make the directory ", failed->folder));
//   }
std::optional<FolderError> MakeFolders(const std::string& path, bool lasting = false);

// Writes the entries of the folder at `path` to the disk. The names that files have got there survive a power failure.
std::optional<FolderError> FlushFolder(const std::string& path);

// The names in the folder at `path`, without "." and "..", in order. Empty if it cannot be read.
std::vector<std::string> NamesIn(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_FOLDER_H_
