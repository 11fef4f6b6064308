#include "lockstep/launch/output/log_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/folder.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {
namespace {

constexpr int kRandomCharacters = 8;

absl::Status CannotCreate(absl::string_view kind, const std::string& path, int error) {
  const std::string doing = absl::StrCat("launch: log ", kind, " ", Printable(path), " cannot be created");
  const bool full = error == ENOSPC || error == EDQUOT;
  return DescriptorError(doing, error,
                         full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition);
}

std::string RandomCharacters() {
  constexpr absl::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
  unsigned char bytes[kRandomCharacters];
  while (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) continue;
  std::string text;
  for (const unsigned char byte : bytes) text.push_back(kAlphabet[byte % kAlphabet.size()]);
  return text;
}

absl::Status CreateFolders(const std::string& path) {
  const auto failed = MakeFolders(path);
  return failed ? CannotCreate("folder", failed->folder, failed->error) : absl::OkStatus();
}

// A folder that nobody else has: its name is new.
absl::StatusOr<std::string> CreateNewFolder(const std::string& parent, absl::string_view run_id, mode_t mode) {
  for (;;) {
    std::string path = absl::StrCat(parent, "/", NewRunName(run_id));
    if (mkdir(path.c_str(), mode) == 0) return path;
    if (errno != EEXIST) return CannotCreate("folder", path, errno);
  }
}

std::string TemporaryFolder() {
  const char* folder = getenv("TMPDIR");
  return folder && *folder ? folder : "/tmp";
}

}  // namespace

std::string NewRunName(absl::string_view run_id) {
  std::string name;
  for (const char c : run_id.substr(0, 100)) {
    name.push_back(absl::ascii_isalnum(c) || absl::StrContains("._-", absl::string_view(&c, 1)) ? c : '_');
  }
  return absl::StrCat(name, "_", RandomCharacters());
}

absl::StatusOr<std::string> CreateLogFolder(const std::string& log_dir, absl::string_view run_id) {
  std::string parent = log_dir;
  if (parent.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(parent, CreateNewFolder(TemporaryFolder(), "launch", 0700));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(CreateFolders(parent));
  }
  return CreateNewFolder(parent, run_id, 0777);
}

absl::StatusOr<LogFile> CreateAttemptFile(const std::string& folder, int attempt, absl::string_view path) {
  LogFile file;
  file.path = absl::StrCat(folder, "/attempt_", attempt, "/", path);
  LOCKSTEP_RETURN_IF_ERROR(CreateFolders(file.path.substr(0, file.path.rfind('/'))));
  file.fd = AboveStdio(UniqueFd(open(file.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666)));
  if (!file.fd.valid()) return CannotCreate("file", file.path, errno);
  return file;
}

absl::StatusOr<LogFile> CreateLogFile(const std::string& folder, int attempt, int local_rank, absl::string_view name) {
  return CreateAttemptFile(folder, attempt, absl::StrCat(local_rank, "/", name, ".log"));
}

}  // namespace lockstep::launch
