// Threads whose start may fail.

#ifndef LOCKSTEP_BASE_THREAD_H_
#define LOCKSTEP_BASE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// Starts a thread that runs `run`, which must not throw. The system refuses it where the user or the container has as
// many processes and threads as it may have. std::thread then throws, which ends a program that does not expect it;
// this returns ResourceExhausted:
//
//   "cannot start the watch's thread: Resource temporarily unavailable (the soft limit of a user's threads is 50
//   (RLIMIT_NPROC, ulimit -u); a container has its own limit, pids.max)"
//
// `name` is for that message: "the watch's thread".
absl::StatusOr<std::thread> StartThread(absl::string_view name, std::function<void()> run);

// ResourceExhausted, as above, unless `count` threads can run at the same time now. For use before code that ends the
// process when it gets fewer. Starts them and waits for their end.
absl::Status CheckThreadsStart(absl::string_view name, int count);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_THREAD_H_
