#include "lockstep/checkpoint/file/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::file {
namespace {

absl::Status ReadFully(int file, uint64_t offset, char* to, size_t count) {
  while (count > 0) {
    const ssize_t got = pread(file, to, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "read");
    if (got == 0) return absl::DataLossError("the file became shorter while it was read");
    offset += got;
    to += got;
    count -= got;
  }
  return absl::OkStatus();
}

absl::Status IsDirectory(int directory) {
  if (faccessat(directory, ".metadata", F_OK, 0) == 0) {
    return absl::InvalidArgumentError(
        "is a directory, a sharded checkpoint; load it with LoadWhole of lockstep/checkpoint/sharded/load_whole.h");
  }
  return absl::InvalidArgumentError("is a directory, not a file");
}

}  // namespace

absl::StatusOr<ByteSource> OpenFile(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const auto file = std::make_shared<UniqueFd>(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file->valid()) return absl::ErrnoToStatus(errno, "open");
  struct stat status;
  if (fstat(file->get(), &status) != 0) return absl::ErrnoToStatus(errno, "stat");
  if (S_ISDIR(status.st_mode)) return IsDirectory(file->get());
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError("is not a regular file");
  ByteSource source;
  source.size = status.st_size;
  source.read = [file](uint64_t offset, void* to, size_t count) {
    return ReadFully(file->get(), offset, static_cast<char*>(to), count);
  };
  return source;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t most_bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ByteSource source, OpenFile(path));
  if (source.size > most_bytes)
    return absl::DataLossError(absl::StrCat("has ", source.size, " bytes, expected at most ", most_bytes));
  std::string bytes(source.size, '\0');
  LOCKSTEP_RETURN_IF_ERROR(source.read(0, bytes.data(), bytes.size()));
  return bytes;
}

}  // namespace lockstep::checkpoint::file
