#include "lockstep/base/posix/descriptors.h"

#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/unique_fd.h"

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
  const int next = UniqueFd(eventfd(0, EFD_CLOEXEC)).get();  // about as many are open
  if (next >= 0 && static_cast<rlim_t>(next) + count <= limit.rlim_cur) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status CheckFreeDescriptors(int count) {
  std::vector<UniqueFd> opened;
  while (static_cast<int>(opened.size()) < count) {
    opened.emplace_back(eventfd(0, EFD_CLOEXEC));
    if (opened.back().valid()) continue;
    return DescriptorError(absl::StrCat("opening ", count, " descriptors, of which ", opened.size() - 1, " are free"),
                           errno);
  }
  return absl::OkStatus();
}

}  // namespace lockstep
