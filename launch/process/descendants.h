// The processes that descend from a process, in whatever session and process group they are.

#ifndef LOCKSTEP_LAUNCH_PROCESS_DESCENDANTS_H_
#define LOCKSTEP_LAUNCH_PROCESS_DESCENDANTS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/process/process_state.h"

namespace lockstep::launch {

// The children of processes.
class ProcessTree {
 public:
  enum class Source {
    kChildrenFiles,  // /proc/PID/task/TID/children, read on demand; needs CONFIG_PROC_CHILDREN
    kAllProcesses,   // one pass over /proc, about 10 us for each process of the machine
  };

  ProcessTree() : ProcessTree(BestSource()) {}
  explicit ProcessTree(Source source);

  // A child that ends or starts meanwhile may be missing.
  std::vector<pid_t> ChildrenOf(pid_t parent) const;

 private:
  static Source BestSource();

  const Source source_;
  std::multimap<pid_t, pid_t> children_;  // by parent; of kAllProcesses
};

// Calls `visit` with every live child of `parent` in `tree`.
void ForEachChild(pid_t parent, const ProcessTree& tree, const std::function<void(pid_t pid, UniqueFd pidfd)>& visit);

// Calls `visit` with every live descendant of `root` in `tree`, except for the children in `spared` and their own
// descendants. A process that starts or loses its parent meanwhile may be missing, so call it until it finds nothing.
void ForEachDescendant(pid_t root, const std::vector<pid_t>& spared, const ProcessTree& tree,
                       const std::function<void(pid_t pid, UniqueFd pidfd)>& visit);

// Kills every descendant of this process, which must be a child subreaper (PR_SET_CHILD_SUBREAPER), and reaps its
// children. A killed process's children become this process's children, so none escapes by ending. `spared` are
// children that stay, with their descendants. Returns once none is left, or after `patience` the processes that are.
std::vector<ProcessState> EndDescendants(const std::vector<pid_t>& spared, absl::Duration patience);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_PROCESS_DESCENDANTS_H_
