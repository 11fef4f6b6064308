#include "lockstep/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep {
namespace {

absl::Status SystemError(absl::string_view name, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(name, ": ", what));
}

// Checks a folder on a file system without O_TMPFILE.
absl::Status CreateAndRemove(absl::string_view name, const std::string& folder) {
  std::string path = absl::StrCat(folder, "/.lockstep_check.XXXXXX");
  if (!UniqueFd(mkostemp(&path[0], O_CLOEXEC)).valid()) return SystemError(name, "no file can be created there");
  unlink(path.c_str());
  return absl::OkStatus();
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Create(absl::string_view name, const std::string& path, bool append) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0666));
  if (!file.valid()) return SystemError(name, "cannot be opened for writing");
  return OutputFile(name, std::move(file));
}

absl::Status OutputFile::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(name_, "cannot be written");
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Close() {
  const int error = file_.Close();
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, absl::StrCat(name_, ": cannot be written"));
}

// A pipe is left alone: opening it would wait for a reader, and closing it would tell one that the run is over.
absl::Status CheckOutputFile(absl::string_view name, const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) return absl::OkStatus();
  if (UniqueFd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY)).valid()) return absl::OkStatus();
  if (errno != ENOENT) return SystemError(name, "cannot be opened for writing");
  return CheckOutputFolder(name, FolderOf(path));
}

absl::Status CheckOutputFolder(absl::string_view name, const std::string& folder, bool or_missing) {
  if (UniqueFd(open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)).valid()) return absl::OkStatus();
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) return CreateAndRemove(name, folder);
  if (errno == ENOENT && or_missing && folder != FolderOf(folder)) {
    return CheckOutputFolder(name, FolderOf(folder), or_missing);
  }
  return SystemError(name, "no file can be created there");
}

}  // namespace lockstep
