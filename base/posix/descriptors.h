// Errors for a process that has run out of file descriptors.

#ifndef LOCKSTEP_BASE_POSIX_DESCRIPTORS_H_
#define LOCKSTEP_BASE_POSIX_DESCRIPTORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// Returns whether `error`, an errno, means that this process (EMFILE) or the system (ENFILE) has no free descriptor.
bool IsOutOfDescriptors(int error);

// The status of a system call that failed to open a descriptor with `error`, an errno. If no descriptor is free, it is
// ResourceExhausted and names the limit:
//
//   "accepting connection 3 of 7: Too many open files (the soft limit of open files is 64 (RLIMIT_NOFILE); raise it
//   with ulimit -n)"
//
// If the hard limit is the same, it says so instead of how to raise the soft one.
// Any other error has the code `otherwise`.
absl::Status DescriptorError(absl::string_view doing, int error,
                             absl::StatusCode otherwise = absl::StatusCode::kUnavailable);

// Raises this process's soft limit of open files to the hard one if it leaves no room for `count` more descriptors.
// Does nothing otherwise, because select() cannot take a descriptor above 1023. If the hard limit leaves no room
// either, the call that meets it returns the error.
void MakeRoomForDescriptors(int count);

// ResourceExhausted, as above, if this process cannot open `count` more descriptors. Use it before code that hangs or
// ends the process without them. Opens them and closes them again.
absl::Status CheckFreeDescriptors(int count);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_DESCRIPTORS_H_
