// Finds the rank that failed first in a status of Launch or Spawn.
//
//   const absl::Status status = launch::Launch({"train"}, {.nproc_per_node = 2});
//   if (const auto failure = launch::FirstFailure(status)) {
//     LOG(ERROR) << "look at the output of rank " << failure->rank;
//   }
//   return launch::ExitCode(status);

#ifndef LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_
#define LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep::launch {

struct RankFailure {
  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;
  int exit_code = -1;   // -1 if a signal ended it
  int signal = 0;       // 0 if it exited
  std::string message;  // the rank's report, in one line; may be empty

  // If the rank's stderr was redirected or teed: the file, and its last lines, at most 10 and at most 2 KiB, with
  // control characters escaped.
  std::string stderr_file;
  std::vector<std::string> stderr_lines;
};

// The rank that caused the failure, or nullopt if `status` is OK or no rank caused it.
std::optional<RankFailure> FirstFailure(const absl::Status& status);

// The value that main of a launching program should return. OK: 0. Otherwise the failed rank's exit code; 128 + signal
// if a signal ended the rank or stopped the launcher; or 1. As in shells, 127 and 126 mean a program that is not found
// or cannot be executed, so if a rank itself exited with one of these, it is 1.
int ExitCode(const absl::Status& status);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_
