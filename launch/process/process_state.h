// Reads the kernel's data about a process in /proc.

#ifndef LOCKSTEP_LAUNCH_PROCESS_PROCESS_STATE_H_
#define LOCKSTEP_LAUNCH_PROCESS_PROCESS_STATE_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::launch {

// The contents of a file, or what could be read of it. A read from /proc fails if the process ends in between, for
// which std::ifstream throws.
std::string ReadFile(const std::string& path);

// The entries of a folder of /proc whose names are numbers.
std::vector<pid_t> NumbersIn(const std::string& path);

struct ProcessState {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';  // as in ps: R, S, D, T, t, Z
  std::string name;
};

// Parses a line of /proc/PID/stat. A name may contain spaces and parentheses.
std::optional<ProcessState> ParseProcessState(absl::string_view stat);

// Reads that line. No value if there is no such process.
std::optional<ProcessState> ReadProcessState(pid_t pid);

// `SIGKILL did not end pid 7 ("train", state D), pid 9 ("sh", state S)`, or "" if `processes` is empty. At most ten are
// named.
std::string NotEnded(const std::vector<ProcessState>& processes);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_PROCESS_PROCESS_STATE_H_
