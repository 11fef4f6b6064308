#include "lockstep/tools/launch/internal/process_group.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"

namespace lockstep::launch::internal {
namespace {

bool Contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

}  // namespace

bool HasEnded(const UniqueFd& pidfd) {
  pollfd poll_fd = {pidfd.get(), POLLIN, 0};
  return poll(&poll_fd, 1, 0) == 1;
}

std::vector<UniqueFd> LiveMembers(const std::vector<pid_t>& groups) {
  std::vector<UniqueFd> members;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (folder == nullptr) return members;
  while (const dirent* entry = readdir(folder.get())) {
    pid_t pid;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || Contains(groups, pid) || !Contains(groups, getpgid(pid))) continue;
    UniqueFd pidfd(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd.valid() && !HasEnded(pidfd)) members.push_back(std::move(pidfd));
  }
  return members;
}

}  // namespace lockstep::launch::internal
