#include "lockstep/tools/launch/internal/group_members.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "lockstep/tools/launch/internal/process_state.h"

namespace lockstep::launch::internal {
namespace {

std::vector<pid_t> MembersOf(const std::vector<pid_t>& groups) {
  std::vector<pid_t> members;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return members;
  while (const dirent* entry = readdir(folder.get())) {
    pid_t pid;
    if (absl::SimpleAtoi(entry->d_name, &pid) && absl::c_linear_search(groups, getpgid(pid))) members.push_back(pid);
  }
  return members;
}

}  // namespace

// A debugger's state is "t".
bool IsStopped(pid_t pid) {
  const std::optional<ProcessState> process = ReadProcessState(pid);
  return process && process->state == 'T';
}

bool HasEnded(const UniqueFd& pidfd) {
  pollfd poll_fd = {pidfd.get(), POLLIN, 0};
  return poll(&poll_fd, 1, 0) == 1;
}

std::vector<UniqueFd> LiveMembers(const std::vector<pid_t>& groups) {
  std::vector<UniqueFd> members;
  for (const pid_t pid : MembersOf(groups)) {
    if (absl::c_linear_search(groups, pid)) continue;
    UniqueFd pidfd(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd.valid() && !HasEnded(pidfd)) members.push_back(std::move(pidfd));
  }
  return members;
}

std::vector<pid_t> StoppedMembers(const std::vector<pid_t>& groups) {
  std::vector<pid_t> members = MembersOf(groups);
  members.erase(std::remove_if(members.begin(), members.end(), [](pid_t pid) { return !IsStopped(pid); }),
                members.end());
  return members;
}

}  // namespace lockstep::launch::internal
