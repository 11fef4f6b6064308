// The file through which a rank tells its launcher how it ended.
//
// Ours is one line "LOCKSTEP1 <status code> <CLOCK_MONOTONIC ns> <bytes>" and then that many bytes of message. Python
// ranks (torch.distributed.elastic's @record) write JSON, {"message": {"message": "...", "extraInfo": {...}}}, and
// torchrun reads it; so both are read, and both are written.
//
// Before or after it there may be lines that tell consequences from causes. "LOCKSTEP1 told <CLOCK_MONOTONIC ns>": from
// then on the rank knew that its group had failed because of another rank. "LOCKSTEP1 heard <text>": an error whose
// message has this text is another rank's.

#ifndef LOCKSTEP_LAUNCH_REPORT_REPORT_FILE_H_
#define LOCKSTEP_LAUNCH_REPORT_REPORT_FILE_H_

#include <stdint.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

inline constexpr char kErrorFileVariable[] = "LOCKSTEP_ERROR_FILE";
inline constexpr char kTorchErrorFileVariable[] = "TORCHELASTIC_ERROR_FILE";
inline constexpr size_t kMaxMessage = 4096;  // bytes

struct Report {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  int64_t time_ns = 0;       // CLOCK_MONOTONIC when it was written; 0 where the writer did not say
  bool consequence = false;  // the rank had been told, or had heard it from another
  std::string message;
};

// An empty file without a name, for one rank. It is gone when the launcher is.
absl::StatusOr<UniqueFd> CreateReportFile();

// The path under which a process of the same user opens this process's `fd`.
std::string ReportPath(const UniqueFd& fd);

// The rank's report. nullopt if it wrote none, or one in a format that is not known. The message is one line of
// printable text.
std::optional<Report> ReadReport(const UniqueFd& fd);
std::optional<Report> ParseReport(absl::string_view text);

// The error that the rank reported, as the JSON that torchrun has in error.json; "" if it reported none.
std::string TorchErrorOf(const UniqueFd& fd);

// Returns whether the rank knew in the end that its group had failed because of another.
bool WasTold(const UniqueFd& fd);

// Writes `status`, which may be OK, to the file that the environment names. False where it names none or the file holds
// a report.
bool WriteReport(const absl::Status& status);

// Write these lines there. Do nothing where the environment names no file, or only torchrun's.
void WriteTold();
void WriteHeard(absl::string_view message);

// Removes all such lines, unless the file holds a report.
void EraseNotes();

// `text`, which has no control characters, as a string of JSON.
std::string JsonString(absl::string_view text);

// `text` as one line that a terminal shows as it is: runs of white space as one space, other characters as Printable
// has them, and past `limit` bytes cut with a note.
std::string OneLine(absl::string_view text, size_t limit = kMaxMessage);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_REPORT_REPORT_FILE_H_
