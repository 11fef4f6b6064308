#include "lockstep/elastic/internal/link_watcher.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"

namespace lockstep::elastic::internal {

using Order = launch::AgentLink::Order;

absl::StatusOr<std::unique_ptr<LinkWatcher>> LinkWatcher::Start(launch::AgentLink* link, comm::ProcessGroup* group) {
  const int stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop < 0) return DescriptorError("World: no eventfd", errno, absl::StatusCode::kResourceExhausted);
  std::unique_ptr<LinkWatcher> watcher(new LinkWatcher(link, group, stop));
  LOCKSTEP_ASSIGN_OR_RETURN(watcher->thread_, StartThread("World's thread", [raw = watcher.get()] { raw->Run(); }));
  return watcher;
}

LinkWatcher::~LinkWatcher() {
  eventfd_write(stop_, 1);
  if (thread_.joinable()) thread_.join();
  close(stop_);
}

void LinkWatcher::Run() {
  for (;;) {
    const Order order = link_.order();
    if (order == Order::kRegroupNow) {
      group_.Abort(absl::UnavailableError(link_.reason()));
      return;
    }
    if (order == Order::kRegroupAfterStep) regroups_after_step_ = true;
    pollfd fds[] = {{link_.fd(), POLLIN, 0}, {stop_, POLLIN, 0}};
    poll(fds, 2, -1);
    if (fds[1].revents != 0) return;
  }
}

}  // namespace lockstep::elastic::internal
