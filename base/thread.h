// Starts threads, and returns an error if the system refuses one.

#ifndef LOCKSTEP_BASE_THREAD_H_
#define LOCKSTEP_BASE_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// Starts a thread that runs `run`, which must not throw. The system refuses a thread if the user or the container has
// reached its limit of processes and threads. std::thread then throws an exception. This returns ResourceExhausted
// instead:
//
//   "cannot start the watch's thread: Resource temporarily unavailable (the soft limit of a user's threads is 50
//   (RLIMIT_NPROC, ulimit -u); a container has its own limit, pids.max)"
//
// `name` is for that message: "the watch's thread".
absl::StatusOr<std::thread> StartThread(absl::string_view name, std::function<void()> run);

// ResourceExhausted, as above, if `count` threads cannot run at the same time now. Use it before code that ends the
// process without them. Starts the threads and waits until they end.
absl::Status CheckThreadsStart(absl::string_view name, int count);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_THREAD_H_
