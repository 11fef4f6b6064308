#include "lockstep/tools/launch/etcd/shared_view.h"

#include <utility>

#include "lockstep/base/status.h"
#include "lockstep/tools/launch/internal/report_file.h"

namespace lockstep::launch::etcd {

using internal::Rendezvous;

absl::StatusOr<std::unique_ptr<SharedView>> SharedView::Create() {
  LOCKSTEP_ASSIGN_OR_RETURN(internal::Event event, internal::Event::Create());
  return std::unique_ptr<SharedView>(new SharedView(std::move(event)));
}

Rendezvous::View SharedView::Look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  event_.Clear();
  if (view_.leads) return view_;
  Rendezvous::View view;
  view.status = view_.status;
  view.decision = view_.decision;
  view.away = view_.away;
  view.met = view_.met;
  view.silence = view_.silence;
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

void SharedView::SetReach(bool away, bool met, std::optional<Rendezvous::Silence> silence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool same_reason =
      silence ? view_.silence && view_.silence->what == silence->what && view_.silence->why == silence->why
              : !view_.silence;
  if (view_.away == away && view_.met == met && same_reason) return;
  view_.away = away;
  view_.met = met;
  view_.silence = std::move(silence);
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
  agent.received_ns = internal::MonotonicNanos();
  NotifyLocked();
}

void SharedView::EraseAgent(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (view_.agents.erase(id) != 0) NotifyLocked();
}

}  // namespace lockstep::launch::etcd
