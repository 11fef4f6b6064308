#include "lockstep/launch/process/strays.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/launch/process/group_members.h"

namespace lockstep::launch {
namespace {

// The number of pidfds that LiveStrays() holds. The usual limit of descriptors is 1024.
constexpr int kMostHeld = 64;

void Send(const UniqueFd& pidfd, int signal) { syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0); }

// Neither this process nor a rank is a stray.
void ForEachStray(pid_t subreaper, const std::vector<pid_t>& groups,
                  const std::function<void(pid_t pid, UniqueFd pidfd)>& visit) {
  if (subreaper == 0) return;
  ForEachDescendant(subreaper, {}, ProcessTree(), [&](pid_t pid, UniqueFd pidfd) {
    if (pid != getpid() && !absl::c_linear_search(groups, pid)) visit(pid, std::move(pidfd));
  });
}

}  // namespace

std::vector<UniqueFd> LiveStrays(pid_t subreaper, const std::vector<pid_t>& groups) {
  if (subreaper == 0) return LiveMembers(groups);
  std::vector<UniqueFd> strays;
  ForEachStray(subreaper, groups, [&](pid_t, UniqueFd pidfd) {
    if (strays.size() < kMostHeld) strays.push_back(std::move(pidfd));
  });
  return strays;
}

void SignalOrphans(pid_t subreaper, const std::vector<pid_t>& groups, int signal, std::set<pid_t>* told) {
  if (subreaper == 0) return;
  ForEachChild(subreaper, ProcessTree(), [&](pid_t pid, const UniqueFd& pidfd) {
    if (pid == getpid() || absl::c_linear_search(groups, getpgid(pid)) || !told->insert(pid).second) return;
    Send(pidfd, IsStopped(pid) ? SIGKILL : signal);
  });
}

void KillStrays(pid_t subreaper, const std::vector<pid_t>& groups) {
  ForEachStray(subreaper, groups, [&](pid_t pid, const UniqueFd& pidfd) {
    if (!absl::c_linear_search(groups, getpgid(pid))) Send(pidfd, SIGKILL);
  });
}

std::vector<ProcessState> StatesOfStrays(pid_t subreaper, const std::vector<pid_t>& groups) {
  std::vector<ProcessState> states;
  ForEachStray(subreaper, groups, [&](pid_t pid, const UniqueFd&) {
    if (const std::optional<ProcessState> state = ReadProcessState(pid)) states.push_back(*state);
  });
  return states;
}

}  // namespace lockstep::launch
