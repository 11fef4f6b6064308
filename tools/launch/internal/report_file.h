// The file through which a rank tells its launcher how it ended.
//
// Ours is one line "LOCKSTEP1 <status code> <CLOCK_MONOTONIC ns> <bytes>" and then that many bytes of message. Python
// ranks (torch.distributed.elastic's @record) write JSON, {"message": {"message": "...", "extraInfo": {...}}}, and
// torchrun reads it; so both are read, and both are written.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REPORT_FILE_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REPORT_FILE_H_

#include <stdint.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/launch/internal/unique_fd.h"

namespace lockstep::launch::internal {

inline constexpr char kErrorFileVariable[] = "LOCKSTEP_ERROR_FILE";
inline constexpr char kTorchErrorFileVariable[] = "TORCHELASTIC_ERROR_FILE";
inline constexpr size_t kMaxMessage = 4096;  // bytes

struct Report {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  int64_t time_ns = 0;  // CLOCK_MONOTONIC when it was written; 0 where the writer did not say
  std::string message;
};

int64_t MonotonicNanos();

// An empty file without a name, for one rank. It is gone when the launcher is.
absl::StatusOr<UniqueFd> CreateReportFile();

// The path under which a process of the same user opens this process's `fd`.
std::string ReportPath(const UniqueFd& fd);

// What the rank wrote, nothing if nothing or no known format. The message is one line of printable text.
std::optional<Report> ReadReport(const UniqueFd& fd);
std::optional<Report> ParseReport(absl::string_view text);

// Writes `status`, which may be OK, to the file that the environment names. False where it names none or the file holds
// a report.
bool WriteReport(const absl::Status& status);

// `text` with runs of line breaks and other control characters as one space, and past `limit` bytes cut with a note.
std::string OneLine(absl::string_view text, size_t limit = kMaxMessage);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REPORT_FILE_H_
