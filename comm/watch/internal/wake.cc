#include "lockstep/comm/watch/internal/wake.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/descriptors.h"
#include "lockstep/base/thread.h"

namespace lockstep::comm::internal {

Waker::~Waker() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Waker::Open() {
  fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return fd_ >= 0 ? absl::OkStatus() : DescriptorError("making the watch's eventfd", errno);
}

void Waker::Wake() { eventfd_write(fd_, 1); }

void Waker::Clear() {
  eventfd_t count = 0;
  eventfd_read(fd_, &count);
}

int PollTimeout(Clock::time_point now, Clock::time_point due) {
  if (due == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::max(due, now) - now);
  return static_cast<int>(std::min<int64_t>(left.count(), 1 << 30));
}

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
