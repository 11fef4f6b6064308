#include "lockstep/launch/rendezvous/etcd/etcd_session.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/rendezvous/etcd/signed_text.h"

namespace lockstep::launch::etcd {
namespace {

using Target = Compare::Target;
using Kind = Operation::Kind;

constexpr int64_t kFirstPauseNs = 50'000'000, kLongestPauseNs = 1'000'000'000, kCalmNs = 5'000'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;
// A request that takes longer is a silence of etcd.
constexpr int64_t kQuickNs = 1'000'000'000;

// A slash in the id would make keys of one job look like keys of another one.
std::string Prefix(const std::string& job_id) {
  return absl::StrCat("/lockstep/launch/", absl::StrReplaceAll(job_id, {{"%", "%25"}, {"/", "%2F"}}), "/");
}

// The end of the range of all keys that begin with `prefix`, whose last character is a slash.
std::string EndOf(std::string prefix) {
  ++prefix.back();
  return prefix;
}

int64_t Seconds(absl::Duration duration) { return absl::ToInt64Seconds(absl::Ceil(duration, absl::Seconds(1))); }

// Errors that no repetition and no other endpoint changes.
bool IsFinal(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status) || absl::IsUnimplemented(status);
}

bool LeaseIsGone(const absl::Status& status) {
  return absl::IsNotFound(status) && absl::StrContains(status.message(), "lease not found");
}

}  // namespace

EtcdSession::EtcdSession(const EtcdOptions& options, std::unique_ptr<EtcdClient> client, SharedView* view)
    : options_(options),
      client_(std::move(client)),
      view_(view),
      prefix_(Prefix(options.job_id)),
      agents_prefix_(prefix_ + "agents/"),
      leader_key_(prefix_ + "leader"),
      decision_key_(prefix_ + "decision"),
      random_(static_cast<unsigned>(std::hash<std::string>()(options.agent_id))) {
  client_->UseEndpoint(std::hash<std::string>()(options_.agent_id));
}

void EtcdSession::Post(std::string text) {
  post_ = std::move(text);
  post_waits_ = true;
}

void EtcdSession::Decide(std::string text) {
  if (!HoldsLead()) return;
  decision_ = std::move(text);
  decision_term_ = leader_->create_revision;
}

void EtcdSession::Step() {
  const int64_t now = MonotonicNanos();
  if (!failed_) CheckDeadlines(now);
  UpdateLeads();
  if (failed_ && leaving_) left_ = true;
  if (failed_ || left_ || now < retry_ns_) return;
  if (lease_ != 0 && now >= keep_alive_ns_ && !keep_alive_.in_flight) KeepAlive();
  if (leaving_) {
    StepLeaving();
  } else {
    StepMember();
  }
}

void EtcdSession::StepMember() {
  if (lease_ == 0) {
    if (!grant_.in_flight) Grant();
    return;
  }
  if (!begun_) {
    if (!begin_job_.in_flight) BeginJob();
    return;
  }
  // The leader watches more than the others.
  if (watching_ && watches_agents_ != HoldsLead()) DropRequests();
  if (!watching_ && !read_.in_flight) Read();
  if (watching_ && !leader_ && !campaign_.in_flight) Campaign();
  StepWrites();
}

void EtcdSession::StepWrites() {
  if (post_waits_ && !write_post_.in_flight) WritePost();
  if (!decision_ || write_decision_.in_flight) return;
  if (HoldsLead() && leader_->create_revision == decision_term_) return WriteDecision();
  decision_.reset();
  End(&write_decision_);
}

void EtcdSession::StepLeaving() {
  if (lease_ != 0) StepWrites();
  if (decision_ && lease_ != 0) return;
  if (lease_ == 0) {
    left_ = true;
  } else if (!revoke_.in_flight) {
    RevokeLease();
  }
}

void EtcdSession::RevokeLease() {
  Begin(&revoke_);
  client_->RevokeLease(lease_, [this](const absl::StatusOr<int64_t>& reply) {
    left_ = absl::IsNotFound(reply.status()) || Ended(&revoke_, reply.status());
  });
}

void EtcdSession::Wait(int wake_fd) {
  const int64_t now = MonotonicNanos(), next = NextStep(now);
  const absl::Status status = client_->Poll(wake_fd, absl::Nanoseconds(std::max<int64_t>(0, next - now)));
  if (!status.ok()) Fail(status);
}

int64_t EtcdSession::NextStep(int64_t now) const {
  int64_t next = std::numeric_limits<int64_t>::max();
  if (failed_) return next;
  for (const Task* task : tasks_) {
    if (task->since_ns == 0) continue;
    next = std::min(next, task->since_ns + Patience());
    if (task->since_ns + kQuickNs > now) next = std::min(next, task->since_ns + kQuickNs);
  }
  if (retry_ns_ > now) return std::min(next, retry_ns_);
  if (lease_ != 0 && !keep_alive_.in_flight) next = std::min(next, keep_alive_ns_);
  if (lease_ != 0 && lease_end_ns_ > now) next = std::min(next, lease_end_ns_);
  return next;
}

void EtcdSession::Begin(Task* task) {
  task->in_flight = true;
  if (task->since_ns == 0) task->since_ns = MonotonicNanos();
}

void EtcdSession::End(Task* task) {
  task->in_flight = false;
  task->since_ns = 0;
}

bool EtcdSession::Ended(Task* task, const absl::Status& status) {
  task->in_flight = false;
  if (status.ok()) {
    End(task);
    answered_ns_ = MonotonicNanos();
  } else if (LeaseIsGone(status) && task == &write_decision_) {
    decision_lease_ = 0;
  } else if (LeaseIsGone(status)) {
    LoseLease();
  } else {
    Trouble(status);
  }
  return status.ok();
}

void EtcdSession::Trouble(const absl::Status& status) {
  if (IsFinal(status)) return Fail(status);
  // Certificates do not fit by waiting, but those of another server may.
  if (absl::IsFailedPrecondition(status) && answered_ns_ == 0 && ++misfits_ >= client_->endpoints().size()) {
    return Fail(status);
  }
  last_error_ = status;
  DropRequests();
  client_->NextEndpoint();
  const int64_t now = MonotonicNanos();
  pause_ns_ = now - trouble_ns_ > kCalmNs ? kFirstPauseNs : std::min(2 * pause_ns_, kLongestPauseNs);
  trouble_ns_ = now;
  // Many agents lose their connections at the same time.
  retry_ns_ = now + std::uniform_int_distribution<int64_t>(pause_ns_ / 2, pause_ns_)(random_);
}

void EtcdSession::DropRequests() {
  client_->CancelAll();
  watching_ = false;
  if (write_post_.in_flight) post_waits_ = true;
  for (Task* task : tasks_) task->in_flight = false;
}

void EtcdSession::Fail(const absl::Status& status) {
  if (failed_) return;
  failed_ = true;
  DropRequests();
  view_->SetError(status);
  UpdateLeads();
}

void EtcdSession::CheckDeadlines(int64_t now) {
  for (const Task* task : tasks_) {
    if (task->since_ns == 0 || now - task->since_ns < Patience()) continue;
    const absl::string_view why = last_error_.ok() ? "there was no answer" : last_error_.message();
    return Fail(absl::UnavailableError(absl::StrCat("etcd (", Endpoints(), "): ", task->name, " did not succeed for ",
                                                    absl::FormatDuration(absl::Nanoseconds(Patience())),
                                                    "; the last error: ", why)));
  }
}

std::string EtcdSession::Endpoints() const { return absl::StrJoin(client_->endpoints(), ", "); }

void EtcdSession::Grant() {
  Begin(&grant_);
  const int64_t sent = MonotonicNanos();
  client_->GrantLease(Seconds(options_.ttl), [this, sent](const absl::StatusOr<int64_t>& lease) {
    if (!Ended(&grant_, lease.status())) return;
    lease_ = *lease;
    if (options_.on_lease) options_.on_lease(lease_);
    OnKeptAlive(sent, Seconds(options_.ttl));
  });
}

void EtcdSession::KeepAlive() {
  Begin(&keep_alive_);
  const int64_t sent = MonotonicNanos();
  client_->KeepLeaseAlive(lease_, [this, sent, lease = lease_](const absl::StatusOr<int64_t>& seconds) {
    // The answer may be about a lease that was lost meanwhile.
    if (Ended(&keep_alive_, seconds.status()) && lease == lease_) OnKeptAlive(sent, *seconds);
  });
  if (!HoldsLead() || decision_lease_ == 0) return;
  client_->KeepLeaseAlive(decision_lease_, [this](const absl::StatusOr<int64_t>& seconds) {
    if (seconds.ok() && *seconds == 0) decision_lease_ = 0;
  });
}

void EtcdSession::OnKeptAlive(int64_t sent_ns, int64_t seconds) {
  if (seconds <= 0) return LoseLease();
  lease_was_ended_ = false;
  lease_end_ns_ = sent_ns + seconds * kNsPerSecond;
  keep_alive_ns_ = sent_ns + seconds * kNsPerSecond / 3;
  UpdateLeads();
}

// Other agents see this one go and come back.
void EtcdSession::LoseLease() {
  lease_ = 0;
  lease_was_ended_ = true;
  lease_end_ns_ = std::min(lease_end_ns_, MonotonicNanos());
  End(&keep_alive_);
  post_waits_ = post_.has_value();
  post_revision_ = 0;
  UpdateLeads();
}

Operation EtcdSession::SignedPut(const std::string& key, const std::string& text, int64_t lease) const {
  return {Kind::kPut, key, SignedText(options_.secret, options_.job_id, key, text), lease};
}

// If nobody leads and nobody has posted, the decision that is left is another job's.
void EtcdSession::BeginJob() {
  Begin(&begin_job_);
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, leader_key_, 0, ""},
                          {Target::kCreateRevision, agents_prefix_, 0, EndOf(agents_prefix_)}};
  transaction.success = {SignedPut(leader_key_, options_.agent_id, lease_), {Kind::kDelete, decision_key_, ""}};
  client_->Execute(transaction, [this](const absl::StatusOr<TransactionReply>& reply) {
    if (Ended(&begin_job_, reply.status())) begun_ = true;
  });
}

void EtcdSession::Campaign() {
  Begin(&campaign_);
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, leader_key_, 0, ""}};
  transaction.success = {SignedPut(leader_key_, options_.agent_id, lease_), {Kind::kRange, leader_key_, ""}};
  transaction.failure = {{Kind::kRange, leader_key_, ""}};
  client_->Execute(transaction, [this](const absl::StatusOr<TransactionReply>& reply) {
    if (!Ended(&campaign_, reply.status())) return;
    for (const KeyValue& kv : reply->kvs) Apply({false, kv});
  });
}

void EtcdSession::Read() {
  Begin(&read_);
  const bool with_agents = HoldsLead();
  const std::string begin = with_agents ? prefix_ : decision_key_;
  const std::string end = with_agents ? EndOf(prefix_) : leader_key_ + '\0';
  client_->Range(begin, end, [this, begin, end, with_agents](const absl::StatusOr<RangeReply>& reply) {
    if (!reply.ok()) return Trouble(reply.status());
    OnRead(*reply, with_agents);
    if (failed_) return;
    client_->Watch(begin, end, reply->revision + 1, [this, with_agents](const absl::StatusOr<WatchReply>& changes) {
      if (!changes.ok()) return Trouble(changes.status());
      OnWatch(*changes, with_agents);
    });
  });
}

void EtcdSession::OnRead(const RangeReply& reply, bool with_agents) {
  leader_.reset();
  leader_revision_ = 0;
  std::set<std::string> keys;
  for (const KeyValue& kv : reply.kvs) {
    keys.insert(kv.key);
    Apply({false, kv});
  }
  if (keys.count(decision_key_) == 0) {
    KeyValue none;
    none.key = decision_key_;
    none.mod_revision = reply.revision;
    Apply({true, none});
  }
  EraseAgentsBut(keys);
  knows_agents_ = with_agents && HoldsLead();
  UpdateLeads();
}

void EtcdSession::OnWatch(const WatchReply& reply, bool with_agents) {
  End(&read_);
  watching_ = true;
  watches_agents_ = with_agents;
  for (const WatchEvent& event : reply.events) Apply(event);
}

void EtcdSession::Apply(const WatchEvent& event) {
  absl::string_view id = event.kv.key;
  if (failed_) return;
  if (event.kv.key == leader_key_) {
    ApplyLeader(event);
  } else if (event.kv.key == decision_key_) {
    ApplyDecision(event);
  } else if (absl::ConsumePrefix(&id, agents_prefix_)) {
    ApplyAgent(std::string(id), event);
  }
}

// The answer to Campaign() may come before older changes.
void EtcdSession::ApplyLeader(const WatchEvent& event) {
  if (event.kv.mod_revision <= leader_revision_) return;
  leader_revision_ = event.kv.mod_revision;
  leader_.reset();
  if (!event.is_delete) {
    const absl::StatusOr<std::string> id = Verified(event.kv);
    if (!id.ok()) {
      return Fail(absl::PermissionDeniedError(absl::StrCat("etcd (", Endpoints(), "): ", id.status().message())));
    }
    leader_ = event.kv;
    End(&campaign_);
  }
  if (!HoldsLead()) knows_agents_ = false;
  UpdateLeads();
}

void EtcdSession::ApplyDecision(const WatchEvent& event) {
  decision_revision_ = std::max(decision_revision_, event.kv.mod_revision);
  if (event.is_delete) {
    decision_revision_ = 0;
    decision_lease_ = 0;
    return view_->SetDecision("");
  }
  decision_lease_ = event.kv.lease;
  const absl::StatusOr<std::string> text = Verified(event.kv);
  if (!text.ok()) return Notice(event.kv.key, text.status());
  view_->SetDecision(*text);
}

void EtcdSession::ApplyAgent(const std::string& id, const WatchEvent& event) {
  if (event.is_delete) {
    agent_revisions_.erase(id);
    return view_->EraseAgent(id);
  }
  if (std::exchange(agent_revisions_[id], event.kv.mod_revision) == event.kv.mod_revision) return;
  absl::StatusOr<std::string> text = Verified(event.kv);
  if (text.ok()) return view_->SetAgent(id, *std::move(text));
  view_->EraseAgent(id);
  Notice(event.kv.key, text.status());
}

void EtcdSession::EraseAgentsBut(const std::set<std::string>& keys) {
  for (auto agent = agent_revisions_.begin(); agent != agent_revisions_.end();) {
    if (keys.count(agents_prefix_ + agent->first) != 0) {
      ++agent;
      continue;
    }
    view_->EraseAgent(agent->first);
    agent = agent_revisions_.erase(agent);
  }
}

absl::StatusOr<std::string> EtcdSession::Verified(const KeyValue& kv) {
  return VerifiedText(options_.secret, options_.job_id, kv.key, kv.value);
}

void EtcdSession::Notice(const std::string& key, const absl::Status& status) {
  if (!noticed_.insert(key).second || !options_.on_notice) return;
  options_.on_notice(absl::StrCat(status.message(), "; it is ignored"));
}

void EtcdSession::UpdateLeads() {
  const int64_t now = MonotonicNanos();
  const bool has_lease = now < lease_end_ns_, met = lease_end_ns_ != 0;
  view_->SetLeads(!failed_ && knows_agents_ && HoldsLead() && has_lease);
  view_->SetReach({!has_lease && met, met, SilenceNow(now, !has_lease && met)});
}

std::optional<Rendezvous::Silence> EtcdSession::SilenceNow(int64_t now, bool away) const {
  Rendezvous::Silence silence;
  silence.since_ns = std::numeric_limits<int64_t>::max();
  for (const Task* task : tasks_) {
    if (task->since_ns != 0) silence.since_ns = std::min(silence.since_ns, task->since_ns);
  }
  const bool has_error = trouble_ns_ > answered_ns_, waits = silence.since_ns <= now;
  const bool is_silent = waits && (has_error || now - silence.since_ns >= kQuickNs);
  if (!is_silent && !away) return std::nullopt;
  silence.who = absl::StrCat("etcd at ", absl::StrReplaceAll(Endpoints(), {{"http://", ""}}));
  if (!waits) silence.since_ns = std::min(now, lease_end_ns_);
  silence.until_ns = silence.since_ns + Patience();
  if (is_silent) {
    absl::string_view why = has_error ? last_error_.message() : "there was no answer";
    if (client_->endpoints().size() == 1) absl::ConsumePrefix(&why, absl::StrCat("etcd ", client_->endpoint(), ": "));
    silence.what = absl::StrCat(silence.who, lease_end_ns_ == 0 ? " has not answered" : " does not answer");
    silence.why = std::string(why);
  } else if (lease_was_ended_) {
    silence.what = absl::StrCat(silence.who, " has ended the lease of this node");
  } else {
    silence.what = absl::StrCat(silence.who, " was not reached for ", absl::FormatDuration(options_.ttl));
  }
  return silence;
}

void EtcdSession::WritePost() {
  Begin(&write_post_);
  post_waits_ = false;
  Transaction transaction;
  transaction.compares = {{Target::kModRevision, AgentKey(), post_revision_, ""}};
  transaction.success = {SignedPut(AgentKey(), *post_, lease_)};
  transaction.failure = {{Kind::kRange, AgentKey(), ""}};
  const size_t bytes = transaction.success[0].value.size();
  client_->Execute(transaction, [this, bytes](const absl::StatusOr<TransactionReply>& reply) {
    if (FailIfTooLarge(reply.status(), "text", bytes)) return;
    if (!Ended(&write_post_, reply.status())) {
      post_waits_ = true;
      return;
    }
    post_revision_ = reply->succeeded ? reply->revision : reply->kvs.empty() ? 0 : reply->kvs[0].mod_revision;
    if (!reply->succeeded) post_waits_ = true;
  });
}

void EtcdSession::WriteDecision() {
  if (decision_lease_ == 0) return GrantDecisionLease();
  Begin(&write_decision_);
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, leader_key_, decision_term_, ""},
                          {Target::kModRevision, decision_key_, decision_revision_, ""}};
  transaction.success = {SignedPut(decision_key_, *decision_, decision_lease_)};
  transaction.failure = {{Kind::kRange, leader_key_, ""}, {Kind::kRange, decision_key_, ""}};
  const size_t bytes = transaction.success[0].value.size();
  client_->Execute(transaction, [this, bytes, text = *decision_](const absl::StatusOr<TransactionReply>& reply) {
    if (FailIfTooLarge(reply.status(), "decision", bytes) || !Ended(&write_decision_, reply.status())) return;
    OnDecided(*reply, text);
  });
}

// The decision survives its leader for as long as an agent that is out of reach tries to come back.
void EtcdSession::GrantDecisionLease() {
  Begin(&write_decision_);
  client_->GrantLease(Seconds(options_.timeout), [this](const absl::StatusOr<int64_t>& lease) {
    if (Ended(&write_decision_, lease.status())) decision_lease_ = *lease;
  });
}

void EtcdSession::OnDecided(const TransactionReply& reply, const std::string& text) {
  if (reply.succeeded) {
    decision_revision_ = reply.revision;
    if (decision_ == text) decision_.reset();
    return;
  }
  decision_revision_ = 0;
  bool leads = false;
  for (const KeyValue& kv : reply.kvs) {
    if (kv.key == leader_key_) leads = kv.create_revision == decision_term_;
    if (kv.key == decision_key_) decision_revision_ = kv.mod_revision;
  }
  if (!leads) decision_.reset();
}

bool EtcdSession::FailIfTooLarge(const absl::Status& status, absl::string_view what, size_t bytes) {
  const bool too_large =
      (absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "request is too large")) ||
      (absl::IsResourceExhausted(status) && absl::StrContains(status.message(), "larger than max"));
  if (!too_large) return false;
  Fail(absl::InvalidArgumentError(absl::StrCat("etcd (", Endpoints(), "): a ", what, " of ", bytes,
                                               " bytes is longer than etcd takes: ", status.message(),
                                               " (etcd's --max-request-bytes, 1572864 by default)")));
  return true;
}

}  // namespace lockstep::launch::etcd
