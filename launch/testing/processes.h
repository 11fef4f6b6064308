// For tests that start real processes: reads pids from files, and waits for processes to end.

#ifndef LOCKSTEP_LAUNCH_TESTING_PROCESSES_H_
#define LOCKSTEP_LAUNCH_TESTING_PROCESSES_H_

#include <stdint.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch::testing {

// A new empty folder in the test's temporary folder, with a slash at its end.
std::string NewFolder();

// The contents of the file; "" if it does not exist.
std::string ReadFile(const std::string& path);

// Returns whether `condition` becomes true within `limit`. Checks every 5 ms.
bool Eventually(const std::function<bool()>& condition, absl::Duration limit = absl::Seconds(5));

// The number in a file that another process is about to write, with a line break at its end. 0 if that takes more than
// 30 s.
pid_t AwaitPid(const std::string& path);

// The number in a file that has a line of /proc/<pid>/status, such as "VmHWM: 1234 kB"; 0 if there is no such line yet.
int64_t KibibytesIn(const std::string& path);

// The contents of the files whose paths match the pattern, as of glob(3).
std::vector<std::string> ReadFiles(const std::string& pattern);

// The number of descriptors that the process has open.
int OpenDescriptors(pid_t pid);

// A socket that listens at the port on every address, with SO_REUSEADDR, as a store of rank 0 does. Invalid if it is
// taken.
UniqueFd ListenAt(int port);

// Returns whether the process does not exist or is a zombie.
bool Gone(pid_t pid);

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_TESTING_PROCESSES_H_
