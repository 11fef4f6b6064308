// The outermost seam of what works on a file.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_AT_PATH_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_AT_PATH_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::internal {

// The result of `f`, or its exception as a status.
inline absl::Status Guarded(absl::FunctionRef<absl::Status()> f) {
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] { status = f(); });
  status.Update(thrown);
  return status;
}

// The same with `path` before it.
inline absl::Status AtPath(absl::string_view path, absl::FunctionRef<absl::Status()> f) {
  return Annotate(Guarded(f), path);
}

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_AT_PATH_H_
