// The processes that are left in a POSIX process group when its leader has ended.

#ifndef LOCKSTEP_LAUNCH_PROCESS_GROUP_MEMBERS_H_
#define LOCKSTEP_LAUNCH_PROCESS_GROUP_MEMBERS_H_

#include <sys/types.h>

#include <vector>

#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

// Returns whether the process that `pidfd` refers to has ended. Does not block.
bool HasEnded(const UniqueFd& pidfd);

// A pidfd for every live process in one of `groups`, except their leaders. The leaders must not have been reaped, so
// that their numbers cannot belong to other processes. Reads /proc: about 2 us for each process of the machine.
std::vector<UniqueFd> LiveMembers(const std::vector<pid_t>& groups);

// Returns whether the process is stopped by a signal such as SIGSTOP: only SIGKILL and SIGCONT reach it. A process that
// a debugger holds is not.
bool IsStopped(pid_t pid);

// The stopped processes of these groups, including leaders.
std::vector<pid_t> StoppedMembers(const std::vector<pid_t>& groups);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_PROCESS_GROUP_MEMBERS_H_
