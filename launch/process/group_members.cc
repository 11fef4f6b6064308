#include "lockstep/launch/process/group_members.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "lockstep/launch/process/process_state.h"

namespace lockstep::launch {
namespace {

std::vector<pid_t> MembersOf(const std::vector<pid_t>& groups) {
  std::vector<pid_t> members = NumbersIn("/proc");
  const auto is_other = [&](pid_t pid) { return !absl::c_linear_search(groups, getpgid(pid)); };
  members.erase(std::remove_if(members.begin(), members.end(), is_other), members.end());
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

}  // namespace lockstep::launch
