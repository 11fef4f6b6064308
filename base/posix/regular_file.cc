#include "lockstep/base/posix/regular_file.h"

#include <fcntl.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  return "a socket";
}

}  // namespace

absl::Status CheckRegular(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected a regular file, found ", KindOf(status.st_mode)));
}

absl::StatusOr<UniqueFd> OpenRegularFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int error = errno;
  struct stat status;
  if (!file.valid()) {
    // A socket and some devices cannot be opened; the system's message does not say what they are.
    if (stat(path.c_str(), &status) == 0) {
      LOCKSTEP_RETURN_IF_ERROR(CheckRegular(status));
    }
    return absl::ErrnoToStatus(error, "cannot be opened");
  }
  if (fstat(file.get(), &status) != 0) return absl::ErrnoToStatus(errno, "cannot be read");
  LOCKSTEP_RETURN_IF_ERROR(CheckRegular(status));
  return file;
}

}  // namespace lockstep
