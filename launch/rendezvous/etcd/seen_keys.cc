#include "lockstep/launch/rendezvous/etcd/seen_keys.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lockstep::launch::etcd {

SeenKeys::SeenKeys(const JobKeys* keys, SharedView* view, std::function<void(const std::string&)> on_notice)
    : keys_(keys), view_(view), on_notice_(std::move(on_notice)) {}

absl::Status SeenKeys::Replace(const RangeReply& reply) {
  leader_.reset();
  leader_revision_ = 0;
  std::set<std::string> keys;
  for (const KeyValue& kv : reply.kvs) {
    keys.insert(kv.key);
    if (absl::Status status = Apply({false, kv}); !status.ok()) return status;
  }
  if (keys.count(keys_->decision()) == 0) {
    KeyValue none;
    none.key = keys_->decision();
    none.mod_revision = reply.revision;
    ApplyDecision({true, none});
  }
  EraseAgentsBut(keys);
  return absl::OkStatus();
}

absl::Status SeenKeys::Apply(const WatchEvent& event) {
  absl::string_view id = event.kv.key;
  if (event.kv.key == keys_->leader()) return ApplyLeader(event);
  if (event.kv.key == keys_->decision()) {
    ApplyDecision(event);
  } else if (absl::ConsumePrefix(&id, keys_->agents())) {
    ApplyAgent(std::string(id), event);
  }
  return absl::OkStatus();
}

// The answer to a campaign may come before older changes.
absl::Status SeenKeys::ApplyLeader(const WatchEvent& event) {
  if (event.kv.mod_revision <= leader_revision_) return absl::OkStatus();
  leader_revision_ = event.kv.mod_revision;
  leader_.reset();
  if (event.is_delete) return absl::OkStatus();
  if (const absl::StatusOr<std::string> id = keys_->TextOf(event.kv); !id.ok()) return id.status();
  leader_ = event.kv;
  return absl::OkStatus();
}

void SeenKeys::ApplyDecision(const WatchEvent& event) {
  if (event.is_delete) {
    decision_ = {};
    return view_->SetDecision("");
  }
  decision_.revision = std::max(decision_.revision, event.kv.mod_revision);
  decision_.lease = event.kv.lease;
  const absl::StatusOr<std::string> text = keys_->TextOf(event.kv);
  if (!text.ok()) return Notice(event.kv.key, text.status());
  view_->SetDecision(*text);
}

void SeenKeys::ApplyAgent(const std::string& id, const WatchEvent& event) {
  if (event.is_delete) {
    agent_revisions_.erase(id);
    return view_->EraseAgent(id);
  }
  if (std::exchange(agent_revisions_[id], event.kv.mod_revision) == event.kv.mod_revision) return;
  absl::StatusOr<std::string> text = keys_->TextOf(event.kv);
  if (text.ok()) return view_->SetAgent(id, *std::move(text));
  view_->EraseAgent(id);
  Notice(event.kv.key, text.status());
}

void SeenKeys::EraseAgentsBut(const std::set<std::string>& keys) {
  for (auto agent = agent_revisions_.begin(); agent != agent_revisions_.end();) {
    if (keys.count(keys_->agent(agent->first)) != 0) {
      ++agent;
      continue;
    }
    view_->EraseAgent(agent->first);
    agent = agent_revisions_.erase(agent);
  }
}

void SeenKeys::Notice(const std::string& key, const absl::Status& status) {
  if (!noticed_.insert(key).second || !on_notice_) return;
  on_notice_(absl::StrCat(status.message(), "; it is ignored"));
}

}  // namespace lockstep::launch::etcd
