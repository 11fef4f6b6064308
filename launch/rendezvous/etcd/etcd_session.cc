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

namespace lockstep::launch::etcd {
namespace {

using Target = Compare::Target;
using Kind = Operation::Kind;

constexpr int64_t kNsPerSecond = 1'000'000'000;

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
      keys_(options.job_id, options.secret),
      requests_({&grant_, &keep_alive_, &begin_job_, &campaign_, &read_, &write_post_, &write_decision_, &revoke_},
                options.join_timeout, options.timeout, std::hash<std::string>()(options.agent_id)) {
  client_->UseEndpoint(std::hash<std::string>()(options_.agent_id));
}

void EtcdSession::Post(std::string text) {
  post_.text = std::move(text);
  post_.waits = true;
}

void EtcdSession::Decide(std::string text) {
  if (!HoldsLead()) return;
  decision_.text = std::move(text);
  decision_.term = leader_.key->create_revision;
}

void EtcdSession::Step() {
  const int64_t now = MonotonicNanos();
  if (!failed_) CheckDeadlines(now);
  UpdateLeads();
  if (failed_ && leaving_) left_ = true;
  if (failed_ || left_ || requests_.Pauses(now)) return;
  if (lease_.id != 0 && now >= lease_.keep_alive_ns && !keep_alive_.in_flight) KeepAlive();
  if (leaving_) {
    StepLeaving();
  } else {
    StepMember();
  }
}

void EtcdSession::StepMember() {
  if (lease_.id == 0) {
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
  if (watching_ && !leader_.key && !campaign_.in_flight) Campaign();
  StepWrites();
}

void EtcdSession::StepWrites() {
  if (post_.waits && !write_post_.in_flight) WritePost();
  if (!decision_.text || write_decision_.in_flight) return;
  if (HoldsLead() && leader_.key->create_revision == decision_.term) return WriteDecision();
  decision_.text.reset();
  RepeatedRequests::End(&write_decision_);
}

void EtcdSession::StepLeaving() {
  if (lease_.id != 0) StepWrites();
  if (decision_.text && lease_.id != 0) return;
  if (lease_.id == 0) {
    left_ = true;
  } else if (!revoke_.in_flight) {
    RevokeLease();
  }
}

void EtcdSession::RevokeLease() {
  Begin(&revoke_);
  client_->RevokeLease(lease_.id, [this](const absl::StatusOr<int64_t>& reply) {
    left_ = absl::IsNotFound(reply.status()) || Ended(&revoke_, reply.status());
  });
}

void EtcdSession::Wait(int wake_fd) {
  const int64_t now = MonotonicNanos(), next = NextStep(now);
  const absl::Status status = client_->Poll(wake_fd, absl::Nanoseconds(std::max<int64_t>(0, next - now)));
  if (!status.ok()) Fail(status);
}

int64_t EtcdSession::NextStep(int64_t now) const {
  if (failed_) return std::numeric_limits<int64_t>::max();
  int64_t next = requests_.NextLook(now);
  if (requests_.Pauses(now)) return next;
  if (lease_.id != 0 && !keep_alive_.in_flight) next = std::min(next, lease_.keep_alive_ns);
  if (lease_.id != 0 && lease_.end_ns > now) next = std::min(next, lease_.end_ns);
  return next;
}

void EtcdSession::Begin(Request* request) { RepeatedRequests::Begin(request, MonotonicNanos()); }

bool EtcdSession::Ended(Request* request, const absl::Status& status) {
  request->in_flight = false;
  if (status.ok()) {
    requests_.Succeed(request, MonotonicNanos());
  } else if (LeaseIsGone(status) && request == &write_decision_) {
    decision_.lease = 0;
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
  if (absl::IsFailedPrecondition(status) && !requests_.has_succeeded() && ++misfits_ >= client_->endpoints().size()) {
    return Fail(status);
  }
  DropRequests();
  client_->NextEndpoint();
  requests_.Fail(status, MonotonicNanos());
}

void EtcdSession::DropRequests() {
  client_->CancelAll();
  watching_ = false;
  if (write_post_.in_flight) post_.waits = true;
  requests_.Drop();
}

void EtcdSession::Fail(const absl::Status& status) {
  if (failed_) return;
  failed_ = true;
  DropRequests();
  view_->SetError(status);
  UpdateLeads();
}

void EtcdSession::CheckDeadlines(int64_t now) {
  const Request* overdue = requests_.Overdue(now);
  if (!overdue) return;
  const absl::Status& last = requests_.last_error();
  Fail(absl::UnavailableError(absl::StrCat("etcd (", Endpoints(), "): ", overdue->name, " did not succeed for ",
                                           absl::FormatDuration(absl::Nanoseconds(requests_.Patience())),
                                           "; the last error: ", last.ok() ? "there was no answer" : last.message())));
}

std::string EtcdSession::Endpoints() const { return absl::StrJoin(client_->endpoints(), ", "); }

void EtcdSession::Grant() {
  Begin(&grant_);
  const int64_t sent = MonotonicNanos();
  client_->GrantLease(Seconds(options_.ttl), [this, sent](const absl::StatusOr<int64_t>& lease) {
    if (!Ended(&grant_, lease.status())) return;
    lease_.id = *lease;
    if (options_.on_lease) options_.on_lease(lease_.id);
    OnKeptAlive(sent, Seconds(options_.ttl));
  });
}

void EtcdSession::KeepAlive() {
  Begin(&keep_alive_);
  const int64_t sent = MonotonicNanos();
  client_->KeepLeaseAlive(lease_.id, [this, sent, lease = lease_.id](const absl::StatusOr<int64_t>& seconds) {
    // The answer may be about a lease that was lost meanwhile.
    if (Ended(&keep_alive_, seconds.status()) && lease == lease_.id) OnKeptAlive(sent, *seconds);
  });
  if (!HoldsLead() || decision_.lease == 0) return;
  client_->KeepLeaseAlive(decision_.lease, [this](const absl::StatusOr<int64_t>& seconds) {
    if (seconds.ok() && *seconds == 0) decision_.lease = 0;
  });
}

void EtcdSession::OnKeptAlive(int64_t sent_ns, int64_t seconds) {
  if (seconds <= 0) return LoseLease();
  lease_.was_ended = false;
  lease_.end_ns = sent_ns + seconds * kNsPerSecond;
  lease_.keep_alive_ns = sent_ns + seconds * kNsPerSecond / 3;
  UpdateLeads();
}

// Other agents see this one go and come back.
void EtcdSession::LoseLease() {
  lease_.id = 0;
  lease_.was_ended = true;
  lease_.end_ns = std::min(lease_.end_ns, MonotonicNanos());
  RepeatedRequests::End(&keep_alive_);
  post_.waits = post_.text.has_value();
  post_.revision = 0;
  UpdateLeads();
}

// If nobody leads and nobody has posted, the decision that is left is another job's.
void EtcdSession::BeginJob() {
  Begin(&begin_job_);
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, keys_.leader(), 0, ""},
                          {Target::kCreateRevision, keys_.agents(), 0, EndOf(keys_.agents())}};
  transaction.success = {keys_.Put(keys_.leader(), options_.agent_id, lease_.id),
                         {Kind::kDelete, keys_.decision(), ""}};
  client_->Execute(transaction, [this](const absl::StatusOr<TransactionReply>& reply) {
    if (Ended(&begin_job_, reply.status())) begun_ = true;
  });
}

void EtcdSession::Campaign() {
  Begin(&campaign_);
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, keys_.leader(), 0, ""}};
  transaction.success = {keys_.Put(keys_.leader(), options_.agent_id, lease_.id), {Kind::kRange, keys_.leader(), ""}};
  transaction.failure = {{Kind::kRange, keys_.leader(), ""}};
  client_->Execute(transaction, [this](const absl::StatusOr<TransactionReply>& reply) {
    if (!Ended(&campaign_, reply.status())) return;
    for (const KeyValue& kv : reply->kvs) Apply({false, kv});
  });
}

void EtcdSession::Read() {
  Begin(&read_);
  const bool with_agents = HoldsLead();
  const std::string begin = with_agents ? keys_.all() : keys_.decision();
  const std::string end = with_agents ? EndOf(keys_.all()) : keys_.leader() + '\0';
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
  leader_.key.reset();
  leader_.revision = 0;
  std::set<std::string> keys;
  for (const KeyValue& kv : reply.kvs) {
    keys.insert(kv.key);
    Apply({false, kv});
  }
  if (keys.count(keys_.decision()) == 0) {
    KeyValue none;
    none.key = keys_.decision();
    none.mod_revision = reply.revision;
    Apply({true, none});
  }
  EraseAgentsBut(keys);
  knows_agents_ = with_agents && HoldsLead();
  UpdateLeads();
}

void EtcdSession::OnWatch(const WatchReply& reply, bool with_agents) {
  RepeatedRequests::End(&read_);
  watching_ = true;
  watches_agents_ = with_agents;
  for (const WatchEvent& event : reply.events) Apply(event);
}

void EtcdSession::Apply(const WatchEvent& event) {
  absl::string_view id = event.kv.key;
  if (failed_) return;
  if (event.kv.key == keys_.leader()) {
    ApplyLeader(event);
  } else if (event.kv.key == keys_.decision()) {
    ApplyDecision(event);
  } else if (absl::ConsumePrefix(&id, keys_.agents())) {
    ApplyAgent(std::string(id), event);
  }
}

// The answer to Campaign() may come before older changes.
void EtcdSession::ApplyLeader(const WatchEvent& event) {
  if (event.kv.mod_revision <= leader_.revision) return;
  leader_.revision = event.kv.mod_revision;
  leader_.key.reset();
  if (!event.is_delete) {
    const absl::StatusOr<std::string> id = keys_.TextOf(event.kv);
    if (!id.ok()) {
      return Fail(absl::PermissionDeniedError(absl::StrCat("etcd (", Endpoints(), "): ", id.status().message())));
    }
    leader_.key = event.kv;
    RepeatedRequests::End(&campaign_);
  }
  if (!HoldsLead()) knows_agents_ = false;
  UpdateLeads();
}

void EtcdSession::ApplyDecision(const WatchEvent& event) {
  decision_.revision = std::max(decision_.revision, event.kv.mod_revision);
  if (event.is_delete) {
    decision_.revision = 0;
    decision_.lease = 0;
    return view_->SetDecision("");
  }
  decision_.lease = event.kv.lease;
  const absl::StatusOr<std::string> text = keys_.TextOf(event.kv);
  if (!text.ok()) return Notice(event.kv.key, text.status());
  view_->SetDecision(*text);
}

void EtcdSession::ApplyAgent(const std::string& id, const WatchEvent& event) {
  if (event.is_delete) {
    agent_revisions_.erase(id);
    return view_->EraseAgent(id);
  }
  if (std::exchange(agent_revisions_[id], event.kv.mod_revision) == event.kv.mod_revision) return;
  absl::StatusOr<std::string> text = keys_.TextOf(event.kv);
  if (text.ok()) return view_->SetAgent(id, *std::move(text));
  view_->EraseAgent(id);
  Notice(event.kv.key, text.status());
}

void EtcdSession::EraseAgentsBut(const std::set<std::string>& keys) {
  for (auto agent = agent_revisions_.begin(); agent != agent_revisions_.end();) {
    if (keys.count(keys_.agent(agent->first)) != 0) {
      ++agent;
      continue;
    }
    view_->EraseAgent(agent->first);
    agent = agent_revisions_.erase(agent);
  }
}

void EtcdSession::Notice(const std::string& key, const absl::Status& status) {
  if (!noticed_.insert(key).second || !options_.on_notice) return;
  options_.on_notice(absl::StrCat(status.message(), "; it is ignored"));
}

void EtcdSession::UpdateLeads() {
  const int64_t now = MonotonicNanos();
  const bool has_lease = now < lease_.end_ns, met = lease_.end_ns != 0;
  view_->SetLeads(!failed_ && knows_agents_ && HoldsLead() && has_lease);
  view_->SetReach({!has_lease && met, met, SilenceNow(now, !has_lease && met)});
}

std::optional<Rendezvous::Silence> EtcdSession::SilenceNow(int64_t now, bool away) const {
  const bool is_silent = requests_.IsSilent(now);
  if (!is_silent && !away) return std::nullopt;
  Rendezvous::Silence silence;
  silence.who = absl::StrCat("etcd at ", absl::StrReplaceAll(Endpoints(), {{"http://", ""}}));
  silence.since_ns = requests_.WaitsSince();
  if (silence.since_ns > now) silence.since_ns = std::min(now, lease_.end_ns);
  silence.until_ns = silence.since_ns + requests_.Patience();
  if (is_silent) {
    absl::string_view why = requests_.Why();
    if (client_->endpoints().size() == 1) absl::ConsumePrefix(&why, absl::StrCat("etcd ", client_->endpoint(), ": "));
    silence.what = absl::StrCat(silence.who, lease_.end_ns == 0 ? " has not answered" : " does not answer");
    silence.why = std::string(why);
  } else if (lease_.was_ended) {
    silence.what = absl::StrCat(silence.who, " has ended the lease of this node");
  } else {
    silence.what = absl::StrCat(silence.who, " was not reached for ", absl::FormatDuration(options_.ttl));
  }
  return silence;
}

void EtcdSession::WritePost() {
  Begin(&write_post_);
  post_.waits = false;
  Transaction transaction;
  transaction.compares = {{Target::kModRevision, keys_.agent(options_.agent_id), post_.revision, ""}};
  transaction.success = {keys_.Put(keys_.agent(options_.agent_id), *post_.text, lease_.id)};
  transaction.failure = {{Kind::kRange, keys_.agent(options_.agent_id), ""}};
  const size_t bytes = transaction.success[0].value.size();
  client_->Execute(transaction, [this, bytes](const absl::StatusOr<TransactionReply>& reply) {
    if (FailIfTooLarge(reply.status(), "text", bytes)) return;
    if (!Ended(&write_post_, reply.status())) {
      post_.waits = true;
      return;
    }
    post_.revision = reply->succeeded ? reply->revision : reply->kvs.empty() ? 0 : reply->kvs[0].mod_revision;
    if (!reply->succeeded) post_.waits = true;
  });
}

void EtcdSession::WriteDecision() {
  if (decision_.lease == 0) return GrantDecisionLease();
  Begin(&write_decision_);
  Transaction transaction;
  transaction.compares = {{Target::kCreateRevision, keys_.leader(), decision_.term, ""},
                          {Target::kModRevision, keys_.decision(), decision_.revision, ""}};
  transaction.success = {keys_.Put(keys_.decision(), *decision_.text, decision_.lease)};
  transaction.failure = {{Kind::kRange, keys_.leader(), ""}, {Kind::kRange, keys_.decision(), ""}};
  const size_t bytes = transaction.success[0].value.size();
  client_->Execute(transaction, [this, bytes, text = *decision_.text](const absl::StatusOr<TransactionReply>& reply) {
    if (FailIfTooLarge(reply.status(), "decision", bytes) || !Ended(&write_decision_, reply.status())) return;
    OnDecided(*reply, text);
  });
}

// The decision survives its leader for as long as an agent that is out of reach tries to come back.
void EtcdSession::GrantDecisionLease() {
  Begin(&write_decision_);
  client_->GrantLease(Seconds(options_.timeout), [this](const absl::StatusOr<int64_t>& lease) {
    if (Ended(&write_decision_, lease.status())) decision_.lease = *lease;
  });
}

void EtcdSession::OnDecided(const TransactionReply& reply, const std::string& text) {
  if (reply.succeeded) {
    decision_.revision = reply.revision;
    if (decision_.text == text) decision_.text.reset();
    return;
  }
  decision_.revision = 0;
  bool leads = false;
  for (const KeyValue& kv : reply.kvs) {
    if (kv.key == keys_.leader()) leads = kv.create_revision == decision_.term;
    if (kv.key == keys_.decision()) decision_.revision = kv.mod_revision;
  }
  if (!leads) decision_.text.reset();
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
