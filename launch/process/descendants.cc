#include "lockstep/launch/process/descendants.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/process/group_members.h"

namespace lockstep::launch {
namespace {

// A killed process takes about 1 ms to end.
constexpr absl::Duration kPause = absl::Milliseconds(1);

// Each thread of a process has a list of its own.
std::vector<pid_t> ChildrenInFiles(pid_t parent) {
  std::vector<pid_t> children;
  const std::string tasks = absl::StrCat("/proc/", parent, "/task");
  for (const pid_t thread : NumbersIn(tasks)) {
    const std::string list = ReadFile(absl::StrCat(tasks, "/", thread, "/children"));
    for (const absl::string_view word : absl::StrSplit(list, ' ', absl::SkipEmpty())) {
      pid_t child;
      if (absl::SimpleAtoi(word, &child)) children.push_back(child);
    }
  }
  return children;
}

// Returns whether `pid` is still this child of `parent`, or has become one of `root` because the parent ended. Its
// number may have been given to a stranger since the list was read.
bool IsStillChild(pid_t pid, pid_t parent, pid_t root) {
  const std::optional<ProcessState> state = ReadProcessState(pid);
  return state && (state->parent == parent || state->parent == root);
}

// Returns whether this process has no child any more, not even one that has ended.
bool ReapChildren() {
  pid_t pid;
  do {
    pid = waitpid(-1, nullptr, WNOHANG);
  } while (pid > 0 || (pid < 0 && errno == EINTR));
  return pid < 0;
}

// Calls `visit` with every live child of `parent`, which descends from `root`.
void VisitChildren(pid_t parent, pid_t root, const ProcessTree& tree,
                   const std::function<void(pid_t pid, UniqueFd pidfd)>& visit) {
  for (const pid_t pid : tree.ChildrenOf(parent)) {
    UniqueFd pidfd(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd.valid() && !HasEnded(pidfd) && IsStillChild(pid, parent, root)) visit(pid, std::move(pidfd));
  }
}

std::vector<ProcessState> KillDescendants(const std::vector<pid_t>& spared) {
  std::vector<ProcessState> found;
  ForEachDescendant(getpid(), spared, ProcessTree(), [&](pid_t pid, const UniqueFd& pidfd) {
    syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    if (const std::optional<ProcessState> state = ReadProcessState(pid)) found.push_back(*state);
  });
  return found;
}

}  // namespace

ProcessTree::Source ProcessTree::BestSource() {
  return access("/proc/thread-self/children", R_OK) == 0 ? Source::kChildrenFiles : Source::kAllProcesses;
}

ProcessTree::ProcessTree(Source source) : source_(source) {
  if (source == Source::kChildrenFiles) return;
  for (const pid_t pid : NumbersIn("/proc")) {
    if (const std::optional<ProcessState> state = ReadProcessState(pid)) children_.emplace(state->parent, pid);
  }
}

std::vector<pid_t> ProcessTree::ChildrenOf(pid_t parent) const {
  if (source_ == Source::kChildrenFiles) return ChildrenInFiles(parent);
  std::vector<pid_t> children;
  const auto range = children_.equal_range(parent);
  for (auto entry = range.first; entry != range.second; ++entry) children.push_back(entry->second);
  return children;
}

void ForEachChild(pid_t parent, const ProcessTree& tree, const std::function<void(pid_t pid, UniqueFd pidfd)>& visit) {
  VisitChildren(parent, parent, tree, visit);
}

void ForEachDescendant(pid_t root, const std::vector<pid_t>& spared, const ProcessTree& tree,
                       const std::function<void(pid_t pid, UniqueFd pidfd)>& visit) {
  std::vector<pid_t> parents = {root};
  for (size_t i = 0; i < parents.size(); ++i) {
    VisitChildren(parents[i], root, tree, [&](pid_t pid, UniqueFd pidfd) {
      if (absl::c_linear_search(spared, pid)) return;
      parents.push_back(pid);
      visit(pid, std::move(pidfd));
    });
  }
}

std::vector<ProcessState> EndDescendants(const std::vector<pid_t>& spared, absl::Duration patience) {
  const int64_t deadline = MonotonicNanos() + absl::ToInt64Nanoseconds(patience);
  for (;;) {
    // Without a child there is no descendant. A list of children that is read while they end can miss one.
    if (ReapChildren()) return {};
    const std::vector<ProcessState> found = KillDescendants(spared);
    if ((found.empty() && !spared.empty()) || MonotonicNanos() >= deadline) return found;
    absl::SleepFor(kPause);
  }
}

}  // namespace lockstep::launch
