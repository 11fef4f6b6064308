// The processes that stay beside the launcher, so that no descendant of a rank outlives it.
//
//   launch               the keeper: its pid is the one that users know
//   └─ rank-keeper       the second keeper, in another session
//      └─ launch         the launcher, which supervises the ranks
//         ├─ rank 0
//         └─ rank 1
//
// Both keepers are child subreapers (PR_SET_CHILD_SUBREAPER): a descendant whose parent has ended becomes their child,
// also if it has called setsid() or has forked twice. They reap such processes, pass every signal on, and pass the
// launcher's exit code on.
//
// - If the launcher is killed, even by SIGKILL, the second keeper kills all its descendants, until none is left.
// - If the keeper is killed, the second one does the same, with the launcher.
// - If the second keeper is killed, the launcher and the ranks die with it (PR_SET_PDEATHSIG). Their descendants become
//   the keeper's, which kills them.
//
// If both keepers are killed in the same moment, the launcher and the ranks still die, but their descendants remain.
//
// A keeper that has killed everything then does what the launcher cannot do any more: it tells other hosts.
//
// The second keeper is in another session for three reasons. Ctrl-C and SIGKILL to the process group of a job, as `kill
// -9 %1` and timeout(1) send it, reach the first keeper alone, so that a signal is not counted twice, and one of the
// two lives. A terminal with `stty tostop` does not stop a launcher that writes to it. Ctrl-Z stops only the first
// keeper, while the ranks and their supervision go on. It has another name because `pkill -9 launch` and `pkill -9 -f
// train.py` must not kill both.

#ifndef LOCKSTEP_LAUNCH_PROCESS_KEEPER_H_
#define LOCKSTEP_LAUNCH_PROCESS_KEEPER_H_

#include <sys/types.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::launch {

// Forks the second keeper and the launcher. Returns in the launcher, with the pid of its parent, the second keeper. In
// the keepers it ends the process when the job has ended. So call it once, before the process has threads or open
// files. Earlier children, of a shell that has become this process by exec, are spared. `argv` is main's; the second
// keeper overwrites it with its name. `cgroup` is the folder of the ranks' cgroup (job_cgroup.h), which the keepers
// remove, or "". The process must not ignore SIGCHLD. ResourceExhausted: the system refuses a process.
//
// `on_killed` is called if one of the three processes was killed, once all that the ranks started has ended. It runs in
// a child of the keeper, so it may load libraries and start threads. After 6 s the child is killed. An error is
// printed. Null: nothing is called.
absl::StatusOr<pid_t> ForkLauncher(int argc, char** argv, const std::string& cgroup,
                                   const std::function<absl::Status()>& on_killed = nullptr);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_PROCESS_KEEPER_H_
