// The checks that Launch makes before it starts anything.

#ifndef LOCKSTEP_LAUNCH_FLAGS_CHECK_OPTIONS_H_
#define LOCKSTEP_LAUNCH_FLAGS_CHECK_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/job/launch_options.h"

namespace lockstep::launch {

// InvalidArgument, in one line, for an option that contradicts another or is out of range.
absl::Status CheckOptions(const std::vector<std::string>& argv, const LaunchOptions& options);

// FailedPrecondition if this process ignores SIGCHLD: the kernel then discards exit codes.
absl::Status CheckThatChildrenCanBeWaitedFor();

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_CHECK_OPTIONS_H_
