// One agent's part in a rendezvous at etcd: which requests are due, and what their answers mean. See etcd_rendezvous.h
// for the keys.
//
// After an error all requests are dropped and begin again, at the next endpoint, after a pause of 50 ms to 1 s. Each
// write compares the revision of its key, so that a request that etcd executes late does not replace a newer text.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_SESSION_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_SESSION_H_

#include <stdint.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/launch/rendezvous/etcd/etcd_client.h"
#include "lockstep/launch/rendezvous/etcd/etcd_rendezvous.h"
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
  // A request that is repeated until it succeeds.
  struct Task {
    explicit Task(const char* name) : name(name) {}

    const char* const name;  // for the error after the deadline
    bool in_flight = false;
    int64_t since_ns = 0;  // the first try; 0: nothing is due
  };

  void StepMember();
  void StepWrites();
  void StepLeaving();
  void Begin(Task* task);
  void End(Task* task);
  // Returns whether `status` is OK. If not, the task is repeated.
  bool Ended(Task* task, const absl::Status& status);
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

  void Apply(const WatchEvent& event);
  void ApplyLeader(const WatchEvent& event);
  void ApplyDecision(const WatchEvent& event);
  void ApplyAgent(const std::string& id, const WatchEvent& event);
  void EraseAgentsBut(const std::set<std::string>& keys);
  void Notice(const std::string& key, const absl::Status& status);
  absl::StatusOr<std::string> Verified(const KeyValue& kv);
  int64_t Patience() const {
    return absl::ToInt64Nanoseconds(answered_ns_ == 0 ? options_.join_timeout : options_.timeout);
  }
  bool HoldsLead() const { return leader_.has_value() && lease_ != 0 && leader_->lease == lease_; }
  void UpdateLeads();
  std::optional<Rendezvous::Silence> SilenceNow(int64_t now, bool away) const;

  std::string AgentKey() const { return agents_prefix_ + options_.agent_id; }
  Operation SignedPut(const std::string& key, const std::string& text, int64_t lease) const;
  std::string Endpoints() const;

  const EtcdOptions options_;
  const std::unique_ptr<EtcdClient> client_;
  SharedView* const view_;
  const std::string prefix_, agents_prefix_, leader_key_, decision_key_;

  Task grant_ = Task("granting a lease");
  Task keep_alive_ = Task("keeping the lease alive");
  Task begin_job_ = Task("looking for a leader");
  Task campaign_ = Task("becoming the leader");
  Task read_ = Task("reading and watching the job's keys");
  Task write_post_ = Task("writing this agent's text");
  Task write_decision_ = Task("writing the decision");
  Task revoke_ = Task("revoking the lease");
  Task* const tasks_[8] = {&grant_, &keep_alive_, &begin_job_,      &campaign_,
                           &read_,  &write_post_, &write_decision_, &revoke_};

  bool failed_ = false, leaving_ = false, left_ = false;
  bool begun_ = false;  // BeginJob() is done
  absl::Status last_error_;
  int64_t retry_ns_ = 0, trouble_ns_ = 0, pause_ns_ = 0;
  int64_t answered_ns_ = 0;  // the last success of a task
  size_t misfits_ = 0;       // servers whose certificates did not fit, before the first success
  std::minstd_rand random_;

  int64_t lease_ = 0;                             // 0: none
  bool lease_was_ended_ = false;                  // by etcd, and there is not another one yet
  int64_t lease_end_ns_ = 0, keep_alive_ns_ = 0;  // when it expires unless it is kept alive, and when that is due

  bool watching_ = false, watches_agents_ = false;
  bool knows_agents_ = false;  // since this agent leads
  std::optional<KeyValue> leader_;
  int64_t leader_revision_ = 0;                     // of the last change of the key that is known
  std::map<std::string, int64_t> agent_revisions_;  // mod revisions by id
  int64_t decision_revision_ = 0, decision_lease_ = 0;
  std::set<std::string> noticed_;  // keys

  std::optional<std::string> post_;  // the latest
  bool post_waits_ = false;
  int64_t post_revision_ = 0;
  std::optional<std::string> decision_;  // the one that waits
  int64_t decision_term_ = 0;            // the create revision of `leader` when it came
};

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_SESSION_H_
