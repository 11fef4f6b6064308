// Reads what EncodeJobStatus() wrote. This header is separate so that launchers do not need a parser of JSON.

#ifndef LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_JOB_STATUS_READER_H_
#define LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_JOB_STATUS_READER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/launch/status/internal/job_status.h"

namespace lockstep::launch::internal {

// InvalidArgument for another text, as of a launcher of another version.
absl::StatusOr<JobStatus> DecodeJobStatus(absl::string_view text);

// The text of {"ok":"..."}, or the one of {"error":"..."} as FailedPrecondition. InvalidArgument for another text.
absl::StatusOr<std::string> DecodeReply(absl::string_view text);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_JOB_STATUS_READER_H_
