// Paths: in errors, and independent of the working directory.

#ifndef LOCKSTEP_CHECKPOINT_FILE_PATH_H_
#define LOCKSTEP_CHECKPOINT_FILE_PATH_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::file {

// Makes `path` absolute, for use after the program's working directory may have changed. Returns `path` if the working
// directory does not exist or `path` is empty.
std::string AbsolutePath(const std::string& path);

// Returns the result of `f`, or its exception as a status.
inline absl::Status Guarded(absl::FunctionRef<absl::Status()> f) {
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] { status = f(); });
  status.Update(thrown);
  return status;
}

// Runs `f` with `path` before its error's message: the outermost call of every function that works on a file.
inline absl::Status AtPath(absl::string_view path, absl::FunctionRef<absl::Status()> f) {
  return Annotate(Guarded(f), path);
}

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_PATH_H_
