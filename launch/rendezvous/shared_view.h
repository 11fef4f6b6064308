// The view of a rendezvous, which one thread writes and another one reads.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_SHARED_VIEW_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_SHARED_VIEW_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/posix/event.h"
#include "lockstep/launch/rendezvous/rendezvous.h"

namespace lockstep::launch {

// Thread-safe.
class SharedView {
 public:
  // ResourceExhausted: no descriptor is free.
  static absl::StatusOr<std::unique_ptr<SharedView>> Create();

  // See Rendezvous.
  int fd() const { return event_.fd(); }
  Rendezvous::View Look();

  // Only the first error counts.
  void SetError(const absl::Status& status);
  void SetLeads(bool leads);
  void SetReach(Rendezvous::Reach reach);
  void SetDecision(const std::string& text);
  void SetAgent(const std::string& id, std::string text);
  void EraseAgent(const std::string& id);

 private:
  explicit SharedView(Event event) : event_(std::move(event)) {}
  void NotifyLocked();

  const Event event_;
  std::mutex mutex_;
  Rendezvous::View view_;  // guarded by mutex_; the agents are there even if this one does not lead
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_SHARED_VIEW_H_
