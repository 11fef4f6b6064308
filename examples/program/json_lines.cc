#include "lockstep/examples/program/json_lines.h"

#include "absl/strings/str_cat.h"

namespace lockstep::examples {

absl::StatusOr<JsonLines> JsonLines::Create(absl::string_view flag, const std::string& path, bool append) {
  JsonLines lines;
  if (path.empty()) return lines;
  lines.name_ = absl::StrCat("--", flag, "=", path);
  lines.file_.open(path, append ? std::ios::app : std::ios::trunc);
  if (!lines.file_) return absl::PermissionDeniedError(absl::StrCat(lines.name_, " cannot be written"));
  return lines;
}

absl::Status JsonLines::Write(const std::string& json) {
  if (name_.empty()) return absl::OkStatus();
  file_ << json << std::endl;
  if (!file_) return absl::DataLossError(absl::StrCat(name_, " cannot be written"));
  return absl::OkStatus();
}

}  // namespace lockstep::examples
