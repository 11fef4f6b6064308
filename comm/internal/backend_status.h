#ifndef LOCKSTEP_COMM_INTERNAL_BACKEND_STATUS_H_
#define LOCKSTEP_COMM_INTERNAL_BACKEND_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::comm::internal {

// Converts the exception being handled to the status of a backend's failure. Gloo's own exceptions have no distinct
// type. They come from its connections, so they become Unavailable, and the source position at the start of their
// messages is removed. "`context`: " is put before the message, unless it is empty.
absl::Status BackendStatus(absl::string_view context);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_BACKEND_STATUS_H_
