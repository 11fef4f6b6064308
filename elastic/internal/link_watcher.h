// Listens to the launcher while a training has a group.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_LINK_WATCHER_H_
#define LOCKSTEP_ELASTIC_INTERNAL_LINK_WATCHER_H_

#include <atomic>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/tools/launch/agent_link/agent_link.h"

namespace lockstep::elastic::internal {

// If the generation is broken, it aborts the group, so that calls under way end. Nobody else may use the link's Join()
// and order() while the object lives. Both arguments must outlive it.
class LinkWatcher {
 public:
  // ResourceExhausted: no thread or descriptor is free.
  static absl::StatusOr<std::unique_ptr<LinkWatcher>> Start(launch::AgentLink* link, comm::ProcessGroup* group);
  ~LinkWatcher();
  LinkWatcher(const LinkWatcher&) = delete;
  LinkWatcher& operator=(const LinkWatcher&) = delete;

  // Whether a process is ready, so that the ranks should regroup after a step.
  bool regroups_after_step() const { return regroups_after_step_; }

 private:
  LinkWatcher(launch::AgentLink* link, comm::ProcessGroup* group, int stop)
      : link_(*link), group_(*group), stop_(stop) {}
  void Run();

  launch::AgentLink& link_;
  comm::ProcessGroup& group_;
  const int stop_;  // an eventfd
  std::atomic<bool> regroups_after_step_ = false;
  std::thread thread_;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_LINK_WATCHER_H_
