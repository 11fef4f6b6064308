// The one seam between LibTorch, which throws, and Lockstep, which returns absl::Status.
//
//   absl::Status status = TorchStatus("rank 1: all_reduce", [&] { work->wait(); });
//   absl::StatusOr<at::Tensor> sum = TorchStatusOr("sum", [&] { return a + b; });
//
// The other way, code that runs inside autograd throws a StatusError, which LibTorch code catches as the
// c10::DistBackendError it is and which comes out of this seam as the very status that went in.

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

// What `error` says, in one line, with "`context`: " before it (nothing where `context` is empty) and without
// LibTorch's C++ stack:
//   StatusError              its own status        c10::IndexError               OutOfRange
//   c10::ValueError,                               c10::NotImplementedError      Unimplemented
//   TypeError, LinAlgError   InvalidArgument       c10::OutOfMemoryError,
//   store, network and                             std::bad_alloc                ResourceExhausted
//   backend errors           Unavailable           anything else                 Internal
// A store, network, backend or other LibTorch error that says it timed out is DeadlineExceeded.
absl::Status StatusFromException(std::exception_ptr error, absl::string_view context);

// Runs f(); what it throws becomes the status.
template <typename F>
absl::Status TorchStatus(absl::string_view context, F&& f) {
  try {
    std::forward<F>(f)();
    return absl::OkStatus();
  } catch (...) {
    return StatusFromException(std::current_exception(), context);
  }
}

// f()'s value; what it throws becomes the status.
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
