#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_WATCH_THREAD_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_WATCH_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace lockstep::comm::internal {

// Starts a watch's thread: it takes none of the process's signals, and has a name that debuggers show.
// ResourceExhausted if the system refuses it.
absl::StatusOr<std::thread> StartWatchThread(std::function<void()> run);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_WATCH_THREAD_H_
