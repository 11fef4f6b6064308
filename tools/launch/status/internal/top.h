// `launch top`: shows a job until it has ended, or somebody types q.

#ifndef LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_TOP_H_
#define LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_TOP_H_

#include "lockstep/tools/launch/status/internal/job_client.h"

namespace lockstep::launch::internal {

// The exit code. stdout must be a terminal. In the end the last state stays below the command.
int RunTop(RunningJob job);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_TOP_H_
