#include "lockstep/comm/watch/internal/watch_thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

#include "lockstep/base/thread.h"

namespace lockstep::comm::internal {

absl::StatusOr<std::thread> StartWatchThread(std::function<void()> run) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::StatusOr<std::thread> thread = StartThread("the watch's thread", std::move(run));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (thread.ok()) pthread_setname_np(thread->native_handle(), "lockstep-watch");
  return thread;
}

}  // namespace lockstep::comm::internal
