#include "lockstep/examples/program/json_lines.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {

absl::StatusOr<JsonLines> JsonLines::Create(absl::string_view flag, const std::string& path, bool append) {
  JsonLines lines;
  if (path.empty()) return lines;
  LOCKSTEP_ASSIGN_OR_RETURN(lines.file_, OutputFile::Create(absl::StrCat("--", flag, "=", path), path, append));
  return lines;
}

absl::Status JsonLines::Write(const std::string& json) {
  return file_ ? file_->Write(absl::StrCat(json, "\n")) : absl::OkStatus();
}

absl::Status JsonLines::Close() { return file_ ? file_->Close() : absl::OkStatus(); }

}  // namespace lockstep::examples
