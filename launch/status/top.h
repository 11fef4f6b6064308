// `launch top`: shows a job until it has ended, or somebody types q.

#ifndef LOCKSTEP_LAUNCH_STATUS_TOP_H_
#define LOCKSTEP_LAUNCH_STATUS_TOP_H_

#include "absl/status/statusor.h"
#include "lockstep/launch/status/job_client.h"

namespace lockstep::launch {

// The exit code, or the error of Terminal::Create(). In the end the last state stays below the command.
absl::StatusOr<int> RunTop(RunningJob job);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_TOP_H_
