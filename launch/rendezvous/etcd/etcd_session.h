// One agent's part in a rendezvous at etcd: which requests are due, and what their answers mean. See etcd_rendezvous.h
// for the keys.
//
// After an error all requests are dropped and begin again, at the next endpoint, after a pause of 50 ms to 1 s. Each
// write compares the revision of its key, so that a request that etcd executes late does not replace a newer text.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_SESSION_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_SESSION_H_

#include <stdint.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/launch/rendezvous/etcd/etcd_client.h"
#include "lockstep/launch/rendezvous/etcd/etcd_rendezvous.h"
#include "lockstep/launch/rendezvous/etcd/job_keys.h"
#include "lockstep/launch/rendezvous/etcd/lease.h"
#include "lockstep/launch/rendezvous/etcd/repeated_requests.h"
#include "lockstep/launch/rendezvous/etcd/seen_keys.h"
#include "lockstep/launch/rendezvous/shared_view.h"

namespace lockstep::launch::etcd {

// Thread-compatible. Its callbacks run in EtcdClient::Poll().
class EtcdSession {
 public:
  // `view` must outlive the object.
  EtcdSession(const EtcdOptions& options, std::unique_ptr<EtcdClient> client, SharedView* view);
  EtcdSession(const EtcdSession&) = delete;
  EtcdSession& operator=(const EtcdSession&) = delete;

  // See Rendezvous. Only the latest text of each counts.
  void Post(std::string text);
  void Decide(std::string text);

  // Writes a decision that waits, and then removes this agent's keys. left() says when that is done.
  void Leave() { leaving_ = true; }
  bool left() const { return left_; }

  // Starts the requests that are due.
  void Step();

  // Waits until `wake_fd` is readable, an answer has come, or Step() has something to do.
  void Wait(int wake_fd);

 private:
  void StepMember();
  void StepWrites();
  void StepLeaving();
  static void Begin(Request* request);
  // Returns whether `status` is OK. If not, the request is repeated.
  bool Ended(Request* request, const absl::Status& status);
  void Trouble(const absl::Status& status);
  void DropRequests();
  void Fail(const absl::Status& status);
  void CheckDeadlines(int64_t now);
  int64_t NextStep(int64_t now) const;

  void Grant();
  void KeepAlive();
  void OnKeptAlive(int64_t sent_ns, int64_t seconds);
  void LoseLease();
  void BeginJob();
  void Campaign();
  void Read();
  void OnRead(const RangeReply& reply, bool with_agents);
  void OnWatch(const WatchReply& reply, bool with_agents);
  void WritePost();
  void WriteDecision();
  void GrantDecisionLease();
  void OnDecided(const TransactionReply& reply, const std::string& text);
  void RevokeLease();
  bool FailIfTooLarge(const absl::Status& status, absl::string_view what, size_t bytes);

  // The keys have been read, or one has changed; `status` says whether they make sense.
  void OnSeen(const absl::Status& status);
  bool HoldsLead() const { return seen_.leader() && lease_.id() != 0 && seen_.leader()->lease == lease_.id(); }
  void UpdateLeads();
  std::optional<Rendezvous::Silence> SilenceNow(int64_t now, bool away) const;

  std::string Endpoints() const;

  const EtcdOptions options_;
  const std::unique_ptr<EtcdClient> client_;
  SharedView* const view_;
  const JobKeys keys_;
  SeenKeys seen_;
  Lease lease_;

  Request grant_ = Request("granting a lease");
  Request keep_alive_ = Request("keeping the lease alive");
  Request begin_job_ = Request("looking for a leader");
  Request campaign_ = Request("becoming the leader");
  Request read_ = Request("reading and watching the job's keys");
  Request write_post_ = Request("writing this agent's text");
  Request write_decision_ = Request("writing the decision");
  Request revoke_ = Request("revoking the lease");
  RepeatedRequests requests_;

  bool failed_ = false, leaving_ = false, left_ = false;
  bool begun_ = false;  // BeginJob() is done
  size_t misfits_ = 0;  // servers whose certificates did not fit, before the first success

  bool watching_ = false, watches_agents_ = false;
  bool knows_agents_ = false;  // since this agent leads

  // The latest text of this agent.
  struct Posted {
    std::optional<std::string> text;
    bool waits = false;  // to be written
    int64_t revision = 0;
  } post_;

  struct Decision {
    std::optional<std::string> text;  // the one that waits to be written
    int64_t term = 0;                 // the create revision of the leader's key when it came
  } decision_;
};

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_SESSION_H_
