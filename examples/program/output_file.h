// A file that a program writes, none of whose errors is lost.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_OUTPUT_FILE_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::examples {

// Errors begin with the file's name and end with what the system said: "--json-file=/full/log: cannot be written: No
// space left on device". Their codes are those of absl::ErrnoToStatus.
class OutputFile {
 public:
  // Opens `path`. It is created if it is missing, and emptied unless `append` is true. `name` is what errors call it.
  static absl::StatusOr<OutputFile> Create(absl::string_view name, const std::string& path, bool append = false);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  // The system has all of `bytes` when this returns OK.
  absl::Status Write(absl::string_view bytes);

  // Some file systems report a failed write only here. Nothing may be written afterwards.
  absl::Status Close();

 private:
  OutputFile(absl::string_view name, int file) : name_(name), file_(file) {}

  std::string name_;
  int file_;  // -1: closed
};

// Whether OutputFile::Create would open `path`, found out by opening it or, if it is missing, a nameless file in its
// folder. Leaves no file behind and changes none. The error is Create's.
absl::Status CheckOutputFile(absl::string_view name, const std::string& path);

// Whether files can be created in `folder`, found out by creating one without a name. `or_missing`: a folder that is
// missing will be made, so its nearest parent is looked at instead.
absl::Status CheckOutputFolder(absl::string_view name, const std::string& folder, bool or_missing = false);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_OUTPUT_FILE_H_
