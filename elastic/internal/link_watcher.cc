#include "lockstep/elastic/internal/link_watcher.h"

#include <poll.h>

#include <utility>

#include "absl/synchronization/mutex.h"
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

LinkWatcher::LinkWatcher(launch::AgentLink* link, Event stop)
    : link_(*link), stop_(std::move(stop)), shared_(std::make_shared<Shared>()) {}

absl::StatusOr<std::unique_ptr<LinkWatcher>> LinkWatcher::Start(launch::AgentLink* link) {
  LOCKSTEP_ASSIGN_OR_RETURN(Event stop, Event::Create("World: no eventfd"));
  std::unique_ptr<LinkWatcher> watcher(new LinkWatcher(link, std::move(stop)));
  LOCKSTEP_ASSIGN_OR_RETURN(watcher->thread_, StartThread("World's thread", [raw = watcher.get()] { raw->Run(); }));
  return watcher;
}

LinkWatcher::~LinkWatcher() {
  stop_.Set();
  if (thread_.joinable()) thread_.join();
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
    pollfd fds[] = {{link_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
    poll(fds, 2, -1);
    if (fds[1].revents != 0) return;
  }
}

}  // namespace lockstep::elastic::internal
