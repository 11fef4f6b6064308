#include "lockstep/launch/rendezvous/shared_view.h"

#include <utility>

#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

absl::StatusOr<std::unique_ptr<SharedView>> SharedView::Create() {
  LOCKSTEP_ASSIGN_OR_RETURN(Event event, Event::Create("launch: no eventfd"));
  return std::unique_ptr<SharedView>(new SharedView(std::move(event)));
}

Rendezvous::View SharedView::Look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  event_.Clear();
  if (view_.leads) return view_;
  Rendezvous::View view;
  view.status = view_.status;
  view.decision = view_.decision;
  view.reach = view_.reach;
  return view;
}

void SharedView::NotifyLocked() { event_.Set(); }

void SharedView::SetError(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!view_.status.ok()) return;
  view_.status = status;
  NotifyLocked();
}

void SharedView::SetLeads(bool leads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(view_.leads, leads) != leads) NotifyLocked();
}

void SharedView::SetReach(Rendezvous::Reach reach) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::optional<Rendezvous::Silence>&before = view_.reach.silence, &now = reach.silence;
  const bool same_reason = before && now ? before->what == now->what && before->why == now->why : !before && !now;
  if (view_.reach.away == reach.away && view_.reach.met == reach.met && same_reason) return;
  view_.reach = std::move(reach);
  NotifyLocked();
}

void SharedView::SetDecision(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(view_.decision, text) != text) NotifyLocked();
}

void SharedView::SetAgent(const std::string& id, std::string text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Rendezvous::Agent& agent = view_.agents[id];
  agent.text = std::move(text);
  agent.received_ns = MonotonicNanos();
  NotifyLocked();
}

void SharedView::EraseAgent(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (view_.agents.erase(id) != 0) NotifyLocked();
}

}  // namespace lockstep::launch
