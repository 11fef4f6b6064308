// Finds the rank that failed first in a status of Launch or Spawn.
//
//   const absl::Status status = launch::Launch({"train"}, {.nproc_per_node = 2});
//   if (const auto failure = launch::FirstFailure(status)) {
//     LOG(ERROR) << "look at the output of rank " << failure->rank;
//   }
//   return launch::ExitCode(status);

#ifndef LOCKSTEP_LAUNCH_REPORT_FAILURE_H_
#define LOCKSTEP_LAUNCH_REPORT_FAILURE_H_

#include <optional>

#include "absl/status/status.h"
#include "lockstep/launch/report/rank_failure.h"  // IWYU pragma: export

namespace lockstep::launch {

// The rank that caused the failure, or nullopt if `status` is OK or no rank caused it.
std::optional<RankFailure> FirstFailure(const absl::Status& status);

// The value that main of a launching program should return. OK: 0. Otherwise the failed rank's exit code; 128 + signal
// if a signal ended the rank or stopped the launcher; or 1. As in shells, 127 and 126 mean a program that is not found
// or cannot be executed, so if a rank itself exited with one of these, it is 1.
int ExitCode(const absl::Status& status);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_REPORT_FAILURE_H_
