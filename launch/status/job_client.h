// Finds the launchers of this user on this host, and asks them.

#ifndef LOCKSTEP_LAUNCH_STATUS_JOB_CLIENT_H_
#define LOCKSTEP_LAUNCH_STATUS_JOB_CLIENT_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/launch/status/job_status.h"

namespace lockstep::launch {

// How long a launcher may take for an answer. It answers in a few milliseconds, unless it is stopped.
inline constexpr absl::Duration kAnswerTimeout = absl::Seconds(2);

struct RunningJob {
  std::string folder;  // of its socket
  pid_t pid = 0;
  std::string text;  // the answer as it came
  absl::StatusOr<JobStatus> status = absl::UnknownError("not asked");
};

// One line to the launcher, and its answer without the line break. NotFound: the launcher is gone. DeadlineExceeded: it
// does not answer. PermissionDenied: another user listens there.
absl::StatusOr<std::string> AskLauncher(const std::string& folder, pid_t pid, const std::string& line,
                                        absl::Duration timeout = kAnswerTimeout);

// Returns the job as its launcher reports it now.
RunningJob LookAtJob(const std::string& folder, pid_t pid);

// The launchers that are there, by their pids; only the one of `name` if that is the pid of one. All are asked at the
// same time, so that stopped ones cost kAnswerTimeout together. Removes sockets of launchers that are gone.
// FailedPrecondition: there is none, and a folder where they could be is not as it must be.
absl::StatusOr<std::vector<RunningJob>> FindJobs(const std::string& name = "");

// The jobs that `name` means: a pid, or the id of a job; "" means all.
std::vector<RunningJob> JobsNamed(const std::string& name, const std::vector<RunningJob>& jobs);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_JOB_CLIENT_H_
