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
      seen_(&keys_, view, options.on_notice),
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
  decision_.term = seen_.leader()->create_revision;
}

void EtcdSession::Step() {
  const int64_t now = MonotonicNanos();
  if (!failed_) CheckDeadlines(now);
  UpdateLeads();
  if (failed_ && leaving_) left_ = true;
  if (failed_ || left_ || requests_.Pauses(now)) return;
  if (lease_.IsDue(now) && !keep_alive_.in_flight) KeepAlive();
  if (leaving_) {
    StepLeaving();
  } else {
    StepMember();
  }
}

void EtcdSession::StepMember() {
  if (lease_.id() == 0) {
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
  if (watching_ && !seen_.leader() && !campaign_.in_flight) Campaign();
  StepWrites();
}

void EtcdSession::StepWrites() {
  if (post_.waits && !write_post_.in_flight) WritePost();
  if (!decision_.text || write_decision_.in_flight) return;
  if (HoldsLead() && seen_.leader()->create_revision == decision_.term) return WriteDecision();
  decision_.text.reset();
  RepeatedRequests::End(&write_decision_);
}

void EtcdSession::StepLeaving() {
  if (lease_.id() != 0) StepWrites();
  if (decision_.text && lease_.id() != 0) return;
  if (lease_.id() == 0) {
    left_ = true;
  } else if (!revoke_.in_flight) {
    RevokeLease();
  }
}

void EtcdSession::RevokeLease() {
  Begin(&revoke_);
  client_->RevokeLease(lease_.id(), [this](const absl::StatusOr<int64_t>& reply) {
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
  if (lease_.id() != 0 && !keep_alive_.in_flight) next = std::min(next, lease_.due_ns());
  if (lease_.id() != 0 && lease_.end_ns() > now) next = std::min(next, lease_.end_ns());
  return next;
}

void EtcdSession::Begin(Request* request) { RepeatedRequests::Begin(request, MonotonicNanos()); }

bool EtcdSession::Ended(Request* request, const absl::Status& status) {
  request->in_flight = false;
  if (status.ok()) {
    requests_.Succeed(request, MonotonicNanos());
  } else if (LeaseIsGone(status) && request == &write_decision_) {
    seen_.decision().lease = 0;
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
    lease_.Grant(*lease);
    if (options_.on_lease) options_.on_lease(lease_.id());
    OnKeptAlive(sent, Seconds(options_.ttl));
  });
}

void EtcdSession::KeepAlive() {
  Begin(&keep_alive_);
  const int64_t sent = MonotonicNanos();
  client_->KeepLeaseAlive(lease_.id(), [this, sent, lease = lease_.id()](const absl::StatusOr<int64_t>& seconds) {
    // The answer may be about a lease that was lost meanwhile.
    if (Ended(&keep_alive_, seconds.status()) && lease == lease_.id()) OnKeptAlive(sent, *seconds);
  });
  if (!HoldsLead() || seen_.decision().lease == 0) return;
  client_->KeepLeaseAlive(seen_.decision().lease, [this](const absl::StatusOr<int64_t>& seconds) {
    if (seconds.ok() && *seconds == 0) seen_.decision().lease = 0;
  });
}

void EtcdSession::OnKeptAlive(int64_t sent_ns, int64_t seconds) {
  if (seconds <= 0) return LoseLease();
  lease_.Keep(sent_ns, seconds);
  UpdateLeads();
}

// Other agents see this one go and come back.
void EtcdSession::LoseLease() {
  lease_.Lose(MonotonicNanos());
  RepeatedRequests::End(&keep_alive_);
  post_.waits = post_.text.has_value();
  post_.revision = 0;
  UpdateLeads();
}

void EtcdSession::BeginJob() {
  Begin(&begin_job_);
  const Transaction transaction = keys_.BeginJob(options_.agent_id, lease_.id());
  client_->Execute(transaction, [this](const absl::StatusOr<TransactionReply>& reply) {
    if (Ended(&begin_job_, reply.status())) begun_ = true;
  });
}

void EtcdSession::Campaign() {
  Begin(&campaign_);
  const Transaction transaction = keys_.Campaign(options_.agent_id, lease_.id());
  client_->Execute(transaction, [this](const absl::StatusOr<TransactionReply>& reply) {
    if (!Ended(&campaign_, reply.status())) return;
    for (const KeyValue& kv : reply->kvs) {
      if (!failed_) OnSeen(seen_.Apply({false, kv}));
    }
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
  OnSeen(seen_.Replace(reply));
  if (failed_) return;
  knows_agents_ = with_agents && HoldsLead();
  UpdateLeads();
}

void EtcdSession::OnWatch(const WatchReply& reply, bool with_agents) {
  RepeatedRequests::End(&read_);
  watching_ = true;
  watches_agents_ = with_agents;
  for (const WatchEvent& event : reply.events) {
    if (!failed_) OnSeen(seen_.Apply(event));
  }
}

void EtcdSession::OnSeen(const absl::Status& status) {
  if (!status.ok()) {
    return Fail(absl::PermissionDeniedError(absl::StrCat("etcd (", Endpoints(), "): ", status.message())));
  }
  if (seen_.leader()) RepeatedRequests::End(&campaign_);
  if (!HoldsLead()) knows_agents_ = false;
  UpdateLeads();
}

void EtcdSession::UpdateLeads() {
  const int64_t now = MonotonicNanos();
  const bool has_lease = lease_.Holds(now), met = lease_.end_ns() != 0;
  view_->SetLeads(!failed_ && knows_agents_ && HoldsLead() && has_lease);
  view_->SetReach({!has_lease && met, met, SilenceNow(now, !has_lease && met)});
}

std::optional<Rendezvous::Silence> EtcdSession::SilenceNow(int64_t now, bool away) const {
  const bool is_silent = requests_.IsSilent(now);
  if (!is_silent && !away) return std::nullopt;
  Rendezvous::Silence silence;
  silence.who = absl::StrCat("etcd at ", absl::StrReplaceAll(Endpoints(), {{"http://", ""}}));
  silence.since_ns = requests_.WaitsSince();
  if (silence.since_ns > now) silence.since_ns = std::min(now, lease_.end_ns());
  silence.until_ns = silence.since_ns + requests_.Patience();
  if (is_silent) {
    absl::string_view why = requests_.Why();
    if (client_->endpoints().size() == 1) absl::ConsumePrefix(&why, absl::StrCat("etcd ", client_->endpoint(), ": "));
    silence.what = absl::StrCat(silence.who, lease_.end_ns() == 0 ? " has not answered" : " does not answer");
    silence.why = std::string(why);
  } else if (lease_.was_ended()) {
    silence.what = absl::StrCat(silence.who, " has ended the lease of this node");
  } else {
    silence.what = absl::StrCat(silence.who, " was not reached for ", absl::FormatDuration(options_.ttl));
  }
  return silence;
}

void EtcdSession::WritePost() {
  Begin(&write_post_);
  post_.waits = false;
  const Transaction transaction = keys_.WritePost(options_.agent_id, *post_.text, lease_.id(), post_.revision);
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
  if (seen_.decision().lease == 0) return GrantDecisionLease();
  Begin(&write_decision_);
  const Transaction transaction =
      keys_.WriteDecision(*decision_.text, seen_.decision().lease, decision_.term, seen_.decision().revision);
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
    if (Ended(&write_decision_, lease.status())) seen_.decision().lease = *lease;
  });
}

void EtcdSession::OnDecided(const TransactionReply& reply, const std::string& text) {
  if (reply.succeeded) {
    seen_.decision().revision = reply.revision;
    if (decision_.text == text) decision_.text.reset();
    return;
  }
  seen_.decision().revision = 0;
  bool leads = false;
  for (const KeyValue& kv : reply.kvs) {
    if (kv.key == keys_.leader()) leads = kv.create_revision == decision_.term;
    if (kv.key == keys_.decision()) seen_.decision().revision = kv.mod_revision;
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
