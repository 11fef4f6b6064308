// What a status of Launch or Spawn says about the rank that failed first.
//
//   const absl::Status status = launch::Launch({"train"}, {.nproc_per_node = 2});
//   if (const auto failure = launch::FirstFailure(status)) LOG(ERROR) << "look at the output of rank " <<
//   failure->rank; return launch::ExitCode(status);

#ifndef LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_
#define LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace lockstep::launch {

struct RankFailure {
  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;
  int exit_code = -1;   // -1 if a signal ended it
  int signal = 0;       // 0 if it exited
  std::string message;  // what the rank reported, in one line; may be empty
};

// The rank that is to blame, nothing where `status` is OK or no rank is.
std::optional<RankFailure> FirstFailure(const absl::Status& status);

// What a launching program's main should return: 0 for OK, the failed rank's exit code, 128 + signal if a signal ended
// the rank or the launcher was told to stop by one, else 1. 127 and 126 are kept for a program that is not found or
// cannot be executed, as shells have it: where a rank itself exited with one of these, 1.
int ExitCode(const absl::Status& status);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_
