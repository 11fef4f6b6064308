// An output file that reports every error.

#ifndef LOCKSTEP_BASE_OUTPUT_FILE_H_
#define LOCKSTEP_BASE_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep {

// Errors begin with the file's name and end with the system's error: "--json-file=/full/log: cannot be written: No
// space left on device". absl::ErrnoToStatus chooses their codes.
class OutputFile {
 public:
  // Opens `path`. Creates it if it does not exist, and truncates it unless `append` is true. Errors call it `name`.
  static absl::StatusOr<OutputFile> Create(absl::string_view name, const std::string& path, bool append = false);

  // Passes all of `bytes` to the system before it returns OK.
  absl::Status Write(absl::string_view bytes);

  // Some file systems report a failed write only here. Do not write afterwards.
  absl::Status Close();

 private:
  OutputFile(absl::string_view name, UniqueFd file) : name_(name), file_(std::move(file)) {}

  std::string name_;
  UniqueFd file_;
};

// Checks whether OutputFile::Create could open `path`, by opening it or, if it does not exist, by opening a nameless
// file in its folder. Leaves no file behind and changes none. Returns Create's errors.
absl::Status CheckOutputFile(absl::string_view name, const std::string& path);

// Checks whether files can be created in `folder`, by creating one without a name. `or_missing`: the folder may be
// missing, since it will be created; its nearest existing parent is then checked.
absl::Status CheckOutputFolder(absl::string_view name, const std::string& folder, bool or_missing = false);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_OUTPUT_FILE_H_
