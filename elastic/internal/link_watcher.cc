#include "lockstep/elastic/internal/link_watcher.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "absl/synchronization/mutex.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"

namespace lockstep::elastic::internal {

using Order = launch::AgentLink::Order;

struct LinkWatcher::Shared {
  absl::Mutex mutex;
  absl::Status broken;                  // why the generation is
  comm::ProcessGroup* group = nullptr;  // null: there is none yet
};

LinkWatcher::LinkWatcher(launch::AgentLink* link, int stop)
    : link_(*link), stop_(stop), shared_(std::make_shared<Shared>()) {}

absl::StatusOr<std::unique_ptr<LinkWatcher>> LinkWatcher::Start(launch::AgentLink* link) {
  const int stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop < 0) return DescriptorError("World: no eventfd", errno, absl::StatusCode::kResourceExhausted);
  std::unique_ptr<LinkWatcher> watcher(new LinkWatcher(link, stop));
  LOCKSTEP_ASSIGN_OR_RETURN(watcher->thread_, StartThread("World's thread", [raw = watcher.get()] { raw->Run(); }));
  return watcher;
}

LinkWatcher::~LinkWatcher() {
  eventfd_write(stop_, 1);
  if (thread_.joinable()) thread_.join();
  close(stop_);
}

std::function<absl::Status()> LinkWatcher::interruption() const {
  return [shared = shared_] {
    const MutexLock lock(shared->mutex);
    return shared->broken;
  };
}

void LinkWatcher::Guard(comm::ProcessGroup* group) {
  const MutexLock lock(shared_->mutex);
  shared_->group = group;
  if (!shared_->broken.ok()) group->Abort(shared_->broken);
}

void LinkWatcher::Run() {
  for (;;) {
    const Order order = link_.order();
    if (order == Order::kRegroupNow) {
      const MutexLock lock(shared_->mutex);
      shared_->broken = absl::UnavailableError(link_.reason());
      if (shared_->group) shared_->group->Abort(shared_->broken);
      return;
    }
    if (order == Order::kRegroupAfterStep) regroups_after_step_ = true;
    pollfd fds[] = {{link_.fd(), POLLIN, 0}, {stop_, POLLIN, 0}};
    poll(fds, 2, -1);
    if (fds[1].revents != 0) return;
  }
}

}  // namespace lockstep::elastic::internal
