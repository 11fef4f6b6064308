// Listens to the launcher while a training forms a group and has one.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_LINK_WATCHER_H_
#define LOCKSTEP_ELASTIC_INTERNAL_LINK_WATCHER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/posix/event.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/launch/link/agent_link.h"

namespace lockstep::elastic::internal {

// If the generation is broken, it aborts the group, so that calls under way end. Nobody else may use the link's Join()
// and order() while the object lives. The link must outlive it.
class LinkWatcher {
 public:
  // ResourceExhausted: no thread or descriptor is free.
  static absl::StatusOr<std::unique_ptr<LinkWatcher>> Start(launch::AgentLink* link);
  ~LinkWatcher();
  LinkWatcher(const LinkWatcher&) = delete;
  LinkWatcher& operator=(const LinkWatcher&) = delete;

  // An error once the generation is broken: Unavailable, with the launcher's reason. The function may outlive this
  // object, and any thread may call it.
  std::function<absl::Status()> interruption() const;

  // Aborts `group`, which must outlive this object, when the generation is broken.
  void Guard(comm::ProcessGroup* group);

  // Returns whether the ranks should regroup after a step: a process is ready, or a node leaves.
  bool regroups_after_step() const { return regroups_after_step_; }

 private:
  struct Shared;
  LinkWatcher(launch::AgentLink* link, Event stop);
  void Run();

  launch::AgentLink& link_;
  const Event stop_;
  const std::shared_ptr<Shared> shared_;
  std::atomic<bool> regroups_after_step_ = false;
  std::thread thread_;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_LINK_WATCHER_H_
