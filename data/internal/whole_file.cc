#include "lockstep/data/internal/whole_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::data::internal {

absl::StatusOr<absl::string_view> ReadWholeFile(const std::string& path, int64_t most, std::vector<char>& buffer) {
  LOCKSTEP_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(path));
  struct stat status;
  if (fstat(file.get(), &status) != 0) return absl::ErrnoToStatus(errno, "cannot be read");
  if (status.st_size > most) {
    return absl::ResourceExhaustedError(absl::StrCat("expected at most ", most, " bytes, found ", status.st_size));
  }
  const size_t size = status.st_size;
  if (buffer.size() < size) buffer.resize(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t part = read(file.get(), buffer.data() + done, size - done);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return absl::ErrnoToStatus(errno, "cannot be read");
    if (part == 0) break;
    done += part;
  }
  return absl::string_view(buffer.data(), done);
}

}  // namespace lockstep::data::internal
