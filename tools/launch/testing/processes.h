// For tests that watch real processes: pids in files, and waiting until somebody is gone.

#ifndef LOCKSTEP_TOOLS_LAUNCH_TESTING_PROCESSES_H_
#define LOCKSTEP_TOOLS_LAUNCH_TESTING_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::launch::testing {

// A new empty folder under the test's own temporary one, with a slash at its end.
std::string NewFolder();

// The whole file, "" if there is none.
std::string ReadFile(const std::string& path);

// Whether `condition` held within `limit`; looks every 5 ms.
bool Eventually(const std::function<bool()>& condition, absl::Duration limit = absl::Seconds(5));

// The number in a file that another process is about to write with a line break at its end; 0 if that takes more than 5
// s.
pid_t AwaitPid(const std::string& path);

// Whether there is no such process, or only what its parent has not reaped.
bool Gone(pid_t pid);

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_TOOLS_LAUNCH_TESTING_PROCESSES_H_
