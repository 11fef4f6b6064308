// The folder for the output of ranks, laid out as torchrun's:
// <log_dir>/<run_id>_<8 random characters>/attempt_<number>/<local rank>/stdout.log and stderr.log.
// Beside them is error.json of a rank that reported its error. In the folder of the attempt are filtered_stdout.log and
// filtered_stderr.log.

#ifndef LOCKSTEP_LAUNCH_OUTPUT_LOG_FOLDER_H_
#define LOCKSTEP_LAUNCH_OUTPUT_LOG_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

struct LogFile {
  std::string path;
  UniqueFd fd;  // for appending
};

// The name of the folder of a run: `run_id`, with characters that are unusual in names as "_", and "_" and 8 random
// characters.
std::string NewRunName(absl::string_view run_id);

// Creates `log_dir`, if it does not exist, and in it a new folder for this run. If `log_dir` is empty, it creates a
// folder launch_<8 random characters> in $TMPDIR or /tmp instead. Returns the path of the run's folder.
// FailedPrecondition or ResourceExhausted, with the path in the message.
absl::StatusOr<std::string> CreateLogFolder(const std::string& log_dir, absl::string_view run_id);

// Creates the file <folder>/attempt_<attempt>/<path>, and the folders that it needs. The same errors.
absl::StatusOr<LogFile> CreateAttemptFile(const std::string& folder, int attempt, absl::string_view path);

// Creates the file <folder>/attempt_<attempt>/<local_rank>/<name>.log. The same errors.
absl::StatusOr<LogFile> CreateLogFile(const std::string& folder, int attempt, int local_rank, absl::string_view name);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_OUTPUT_LOG_FOLDER_H_
