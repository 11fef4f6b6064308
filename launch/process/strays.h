// The processes that the ranks started: those in the ranks' process groups, and with a subreaper those in any group.

#ifndef LOCKSTEP_LAUNCH_PROCESS_STRAYS_H_
#define LOCKSTEP_LAUNCH_PROCESS_STRAYS_H_

#include <sys/types.h>

#include <set>
#include <vector>

#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/process/process_state.h"

namespace lockstep::launch {

// In these functions `groups` are the pids of the ranks, which must not have been reaped. `subreaper` is
// LaunchOptions::subreaper.

// A pidfd for each of them; with a subreaper for 64 at most: wait for these, then call it again.
std::vector<UniqueFd> LiveStrays(pid_t subreaper, const std::vector<pid_t>& groups);

// Signals strays outside of the groups whose parent has ended, and adds them to `told`. Others have a parent that has
// been told to end: it may end them in its own way, as a launcher that a rank has started does, and a second signal
// would cut that short. Call it again when a process has ended. Stopped ones get SIGKILL, since they would handle any
// other signal only after a SIGCONT.
void SignalOrphans(pid_t subreaper, const std::vector<pid_t>& groups, int signal, std::set<pid_t>* told);

// Sends SIGKILL to all that a signal to the groups does not reach.
void KillStrays(pid_t subreaper, const std::vector<pid_t>& groups);

// The live ones that a signal to the groups does not reach.
std::vector<ProcessState> StatesOfStrays(pid_t subreaper, const std::vector<pid_t>& groups);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_PROCESS_STRAYS_H_
