// The checks that Launch makes before it starts anything.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_CHECK_OPTIONS_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_CHECK_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch::internal {

// InvalidArgument, in one line, for an option that contradicts another or is out of range.
absl::Status CheckOptions(const std::vector<std::string>& argv, const LaunchOptions& options);

// FailedPrecondition if this process ignores SIGCHLD: the kernel then discards exit codes.
absl::Status CheckThatChildrenCanBeWaitedFor();

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_CHECK_OPTIONS_H_
