// A launcher's answers to the commands that people type, as one line of JSON each.

#ifndef LOCKSTEP_LAUNCH_STATUS_JOB_STATUS_JSON_H_
#define LOCKSTEP_LAUNCH_STATUS_JOB_STATUS_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/launch/status/job_status.h"

namespace lockstep::launch {

// Without a line break. Control characters are escaped, so that the text is safe to print.
std::string EncodeJobStatus(const JobStatus& status);

// {"ok":"..."}, or {"error":"..."} with the message of an error.
std::string EncodeReply(const absl::StatusOr<std::string>& reply);

// InvalidArgument for another text, as of a launcher of another version.
absl::StatusOr<JobStatus> DecodeJobStatus(absl::string_view text);

// An error of the launcher is FailedPrecondition. InvalidArgument for another text.
absl::StatusOr<std::string> DecodeReply(absl::string_view text);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_JOB_STATUS_JSON_H_
