#ifndef LOCKSTEP_COMM_INTERNAL_BACKEND_STATUS_H_
#define LOCKSTEP_COMM_INTERNAL_BACKEND_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::comm::internal {

// What went wrong in a backend, from the exception that is being handled. Gloo's own exceptions have no type to tell
// them by; they come from its connections, so they are Unavailable, and the source position that their messages begin
// with is left out. "`context`: " goes before the message, nothing where it is empty.
absl::Status BackendStatus(absl::string_view context);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_BACKEND_STATUS_H_
