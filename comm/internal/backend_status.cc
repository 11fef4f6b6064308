#include "lockstep/comm/internal/backend_status.h"

#include <exception>

#include "absl/strings/match.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::comm::internal {

absl::Status BackendStatus(absl::string_view context) {
  absl::Status status = StatusFromException(std::current_exception(), "");
  absl::string_view message = status.message();
  const bool has_position = absl::StartsWith(message, "[/") || absl::StartsWith(message, "[enforce fail at ");
  const size_t position_end = has_position ? message.find("] ") : absl::string_view::npos;
  if (position_end != absl::string_view::npos) message.remove_prefix(position_end + 2);
  const bool untyped = status.code() == absl::StatusCode::kInternal;
  status = absl::Status(untyped ? absl::StatusCode::kUnavailable : status.code(), message);
  return context.empty() ? status : Annotate(status, context);
}

}  // namespace lockstep::comm::internal
