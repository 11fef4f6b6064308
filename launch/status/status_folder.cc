#include "lockstep/launch/status/status_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/folder.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/printable.h"

namespace lockstep::launch {
namespace {

constexpr char kPrefix[] = "launch-", kSuffix[] = ".sock";

std::string SystemFolder() { return absl::StrCat("/run/user/", geteuid()); }

std::string TmpFolder() { return absl::StrCat("/tmp/lockstep-", geteuid()); }

// XDG_RUNTIME_DIR, if it is a folder of this user. A job on another machine may have the variable of the first one.
std::string RuntimeFolder() {
  const char* path = getenv("XDG_RUNTIME_DIR");
  struct stat info;
  if (!path || path[0] != '/' || stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return "";
  if (info.st_uid != geteuid()) return "";
  return std::string(absl::StripSuffix(path, "/"));
}

absl::Status Wrong(const std::string& folder, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("folder ", Printable(folder), " ", why));
}

}  // namespace

std::string StatusFolder() {
  const std::string runtime = RuntimeFolder();
  return runtime.empty() ? TmpFolder() : absl::StrCat(runtime, "/lockstep");
}

std::vector<std::string> StatusFolders() {
  const std::string runtime = RuntimeFolder();
  if (!runtime.empty() && runtime != SystemFolder()) return {absl::StrCat(runtime, "/lockstep")};
  return {absl::StrCat(SystemFolder(), "/lockstep"), TmpFolder()};
}

absl::StatusOr<UniqueFd> OpenStatusFolder(const std::string& folder, bool create) {
  if (create && mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Wrong(folder, absl::StrCat("cannot be made: ", strerror(errno)));
  }
  UniqueFd fd = AboveStdio(UniqueFd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  if (!fd.valid() && errno == ENOENT) return absl::NotFoundError(absl::StrCat("no folder ", Printable(folder)));
  if (!fd.valid() && (errno == ENOTDIR || errno == ELOOP)) return Wrong(folder, "must be a folder and not a link");
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return Wrong(folder, absl::StrCat("cannot be opened: ", strerror(errno)));
  }
  if (info.st_uid != geteuid()) {
    return Wrong(folder, absl::StrCat("must belong to user ", geteuid(), ", but belongs to ", info.st_uid));
  }
  if ((info.st_mode & 077) != 0) {
    return Wrong(folder, absl::StrFormat("must have mode 700, but has %o", info.st_mode & 07777));
  }
  return fd;
}

std::string PathIn(const UniqueFd& folder, absl::string_view name) {
  return absl::StrCat("/proc/self/fd/", folder.get(), "/", name);
}

std::string SocketName(pid_t pid) { return absl::StrCat(kPrefix, pid, kSuffix); }

pid_t PidOfSocket(absl::string_view name) {
  pid_t pid = 0;
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, kPrefix) || !absl::ConsumeSuffix(&digits, kSuffix)) return 0;
  return absl::SimpleAtoi(digits, &pid) && pid > 0 && SocketName(pid) == name ? pid : 0;
}

std::vector<pid_t> SocketsIn(const UniqueFd& folder) {
  std::vector<pid_t> pids;
  for (const std::string& name : NamesIn(PathIn(folder, ""))) {
    if (const pid_t pid = PidOfSocket(name)) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

UniqueFd ConnectTo(const std::string& path) {
  const SocketAddress address = PathAddress(path);
  if (address.size == 0) return UniqueFd();
  UniqueFd fd = AboveStdio(UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (fd.valid() && connect(fd.get(), address.get(), address.size) == 0) return fd;
  return UniqueFd();
}

// A pid may belong to another container that shares the folder. So only a refused connection means that it is gone.
void RemoveStaleSockets(const UniqueFd& folder) {
  for (const pid_t pid : SocketsIn(folder)) {
    if (kill(pid, 0) == 0 || errno != ESRCH) continue;
    if (!ConnectTo(PathIn(folder, SocketName(pid))).valid() && errno == ECONNREFUSED) {
      unlinkat(folder.get(), SocketName(pid).c_str(), 0);
    }
  }
}

}  // namespace lockstep::launch
