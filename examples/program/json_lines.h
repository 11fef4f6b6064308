// Writes a program's events for other programs: one JSON object a line.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_JSON_LINES_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_JSON_LINES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/examples/program/output_file.h"

namespace lockstep::examples {

class JsonLines {
 public:
  // `path` is the value of the flag `flag`, which errors name. If it is empty, nothing is written. `append` keeps the
  // contents of the file, for a run that is resumed. Returns OutputFile's errors.
  static absl::StatusOr<JsonLines> Create(absl::string_view flag, const std::string& path, bool append) {
    JsonLines lines;
    if (path.empty()) return lines;
    LOCKSTEP_ASSIGN_OR_RETURN(lines.file_, OutputFile::Create(absl::StrCat("--", flag, "=", path), path, append));
    return lines;
  }

  // Writes one object, without a line break in it. It is in the file when this returns.
  absl::Status Write(const std::string& json) {
    return file_ ? file_->Write(absl::StrCat(json, "\n")) : absl::OkStatus();
  }

  // Closes the file.
  absl::Status Close() { return file_ ? file_->Close() : absl::OkStatus(); }

 private:
  JsonLines() = default;

  std::optional<OutputFile> file_;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_JSON_LINES_H_
