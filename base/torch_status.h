// Converts between LibTorch's exceptions and Lockstep's absl::Status. Lockstep uses no other code for this.
//
//   absl::Status status = TorchStatus("rank 1: all_reduce", [&] { work->wait(); });
//   absl::StatusOr<at::Tensor> sum = TorchStatusOr("sum", [&] { return a + b; });
//
// In the other direction, code that runs inside autograd throws a StatusError. LibTorch code can catch it as a
// c10::DistBackendError, and TorchStatus() returns the status that it contains.

#ifndef LOCKSTEP_BASE_TORCH_STATUS_H_
#define LOCKSTEP_BASE_TORCH_STATUS_H_

#include <c10/util/Exception.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// An absl::Status thrown through LibTorch code. `what()` is the status's message.
class StatusError : public c10::DistBackendError {
 public:
  // Requires: !status.ok().
  explicit StatusError(absl::Status status);
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Throws StatusError if `status` is an error.
void ThrowIfError(const absl::Status& status);

// Converts an exception to a status. The message is one line, with "`context`: " before it (unless `context` is empty)
// and without LibTorch's C++ stack. Codes:
//   StatusError              the status it contains  c10::IndexError           OutOfRange
//   c10::ValueError,                                 c10::NotImplementedError  Unimplemented
//   TypeError, LinAlgError   InvalidArgument         c10::OutOfMemoryError,
//   store, network and                               std::bad_alloc            ResourceExhausted
//   backend errors           Unavailable             anything else             Internal
// If the text of a store, network or backend error, or of an exception under "anything else", says that something timed
// out, the code is DeadlineExceeded.
absl::Status StatusFromException(std::exception_ptr error, absl::string_view context);

// Runs f() and converts an exception to a status.
template <typename F>
absl::Status TorchStatus(absl::string_view context, F&& f) {
  try {
    std::forward<F>(f)();
    return absl::OkStatus();
  } catch (...) {
    return StatusFromException(std::current_exception(), context);
  }
}

// Returns the value of f(), or its exception as a status.
template <typename F>
auto TorchStatusOr(absl::string_view context, F&& f) -> absl::StatusOr<decltype(f())> {
  try {
    return std::forward<F>(f)();
  } catch (...) {
    return StatusFromException(std::current_exception(), context);
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_TORCH_STATUS_H_
