#include "lockstep/base/descriptors.h"

#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

std::string Limit(int error) {
  if (error == ENFILE) return "the system's limit is in /proc/sys/fs/file-max";
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= limit.rlim_max) {
    return absl::StrCat("the soft and the hard limit of open files are ", limit.rlim_cur, " (RLIMIT_NOFILE)");
  }
  return absl::StrCat("the soft limit of open files is ", limit.rlim_cur, " (RLIMIT_NOFILE); raise it with ulimit -n");
}

}  // namespace

bool IsOutOfDescriptors(int error) { return error == EMFILE || error == ENFILE; }

absl::Status DescriptorError(absl::string_view doing, int error, absl::StatusCode otherwise) {
  const std::string message = absl::StrCat(doing, ": ", strerror(error));
  if (!IsOutOfDescriptors(error)) return absl::Status(otherwise, message);
  return absl::ResourceExhaustedError(absl::StrCat(message, " (", Limit(error), ")"));
}

void MakeRoomForDescriptors(int count) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  const int next = eventfd(0, EFD_CLOEXEC);  // about as many are open
  if (next >= 0) close(next);
  if (next >= 0 && static_cast<rlim_t>(next) + count <= limit.rlim_cur) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status CheckFreeDescriptors(int count) {
  std::vector<int> opened;
  absl::Status status;
  while (status.ok() && static_cast<int>(opened.size()) < count) {
    const int fd = eventfd(0, EFD_CLOEXEC);
    if (fd >= 0) {
      opened.push_back(fd);
    } else {
      status = DescriptorError(absl::StrCat("opening ", count, " descriptors, of which ", opened.size(), " are free"),
                               errno);
    }
  }
  for (const int fd : opened) close(fd);
  return status;
}

}  // namespace lockstep
