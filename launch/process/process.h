// Starts one program as a child that cannot outlive its parent.

#ifndef LOCKSTEP_LAUNCH_PROCESS_PROCESS_H_
#define LOCKSTEP_LAUNCH_PROCESS_PROCESS_H_

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

struct ProcessSpec {
  std::string path;                      // the file to execute
  std::vector<std::string> argv;         // argv[0] included
  std::vector<std::string> environment;  // "NAME=value"; the whole environment
  std::set<int> cpus;                    // where the child runs; empty: where the calling thread may run
  std::vector<int> inherited_fds;        // kept open in the child under the same numbers
  int stdout_fd = -1;                    // above 2; the child's stdout; -1: this process's
  int stderr_fd = -1;                    // the same for stderr
  int cgroup_fd = -1;                    // the folder of the child's cgroup; -1: this process's
};

struct Process {
  pid_t pid = -1;
  UniqueFd pidfd;  // becomes readable when the process has ended; the caller reaps `pid`
};

// Returns once the program runs. If the kernel does not start the child in `cgroup_fd`, it is in this process's cgroup.
// The child leads a new session and process group (id: its pid), reads /dev/null, has the calling thread's signal mask,
// default handlers, and is killed when the calling *thread* ends. Between fork and exec only async-signal-safe
// functions run, so the caller may have threads. Errors: NotFound or PermissionDenied where the program cannot be
// executed, ResourceExhausted where the system refuses a process, FailedPrecondition where it refuses the CPUs.
absl::StatusOr<Process> StartProcess(const ProcessSpec& spec);

// The file that a shell would execute for `program`: itself if it holds a slash, else the first match in $PATH.
// Errors: NotFound, PermissionDenied (there, but not an executable file); the message names the program.
absl::StatusOr<std::string> FindProgram(absl::string_view program);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_PROCESS_PROCESS_H_
