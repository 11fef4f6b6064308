// Macros and functions for code that propagates absl::Status.
//
//   absl::StatusOr<int> Twice(absl::string_view path) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const int value, ReadNumber(path));
//     LOCKSTEP_RETURN_IF_ERROR(CheckRange(value));
//     return 2 * value;
//   }

#ifndef LOCKSTEP_BASE_STATUS_H_
#define LOCKSTEP_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// Returns `status` with "`context`: " before its message. An OK status does not change.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Returns `status` with `ending` after its message. An OK status does not change.
absl::Status WithEnding(const absl::Status& status, absl::string_view ending);

}  // namespace lockstep

// Returns from the enclosing function if `expression`, an absl::Status, is an error.
#define LOCKSTEP_RETURN_IF_ERROR(expression)             \
  do {                                                   \
    absl::Status lockstep_status_ = (expression);        \
    if (!lockstep_status_.ok()) return lockstep_status_; \
  } while (false)

// Assigns the value of `expression`, an absl::StatusOr, to `lhs` (which may be a declaration), or returns its error.
#define LOCKSTEP_ASSIGN_OR_RETURN(lhs, ...) \
  LOCKSTEP_ASSIGN_OR_RETURN_IMPL_(LOCKSTEP_STATUS_CONCAT_(lockstep_status_or_, __LINE__), lhs, __VA_ARGS__)

#define LOCKSTEP_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, ...) \
  auto statusor = (__VA_ARGS__);                            \
  if (!statusor.ok()) return std::move(statusor).status();  \
  lhs = *std::move(statusor)

#define LOCKSTEP_STATUS_CONCAT_(a, b) LOCKSTEP_STATUS_CONCAT_IMPL_(a, b)
#define LOCKSTEP_STATUS_CONCAT_IMPL_(a, b) a##b

#endif  // LOCKSTEP_BASE_STATUS_H_
