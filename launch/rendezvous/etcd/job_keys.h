// The keys of a job at etcd, and the texts behind them, which are signed if the job has a secret. See
// etcd_rendezvous.h for what each key means.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_JOB_KEYS_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_JOB_KEYS_H_

#include <stdint.h>

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/launch/rendezvous/etcd/etcd_client.h"

namespace lockstep::launch::etcd {

class JobKeys {
 public:
  JobKeys(const std::string& job_id, const std::string& secret);

  // All keys of the job begin with all(), and the keys of its agents with agents(). Both end in a slash.
  const std::string& all() const { return all_; }
  const std::string& agents() const { return agents_; }
  const std::string& leader() const { return leader_; }
  const std::string& decision() const { return decision_; }
  std::string agent(const std::string& id) const { return agents_ + id; }

  // Makes the agent the leader. Where nobody leads and nobody has posted, the decision that is left is another job's.
  Transaction BeginJob(const std::string& agent_id, int64_t lease) const;
  // Makes the agent the leader if nobody leads. Finds the leader's key.
  Transaction Campaign(const std::string& agent_id, int64_t lease) const;
  // Writes the agent's text if its key has the revision. Else finds the key.
  Transaction WritePost(const std::string& agent_id, const std::string& text, int64_t lease, int64_t revision) const;
  // Writes the decision if its key has the revision, and the leader's key is the one that was created at `term`. Else
  // finds both keys.
  Transaction WriteDecision(const std::string& text, int64_t lease, int64_t term, int64_t revision) const;
  // Returns the text behind a key. PermissionDenied: its signature is wrong; the message names the key.
  absl::StatusOr<std::string> TextOf(const KeyValue& kv) const;

 private:
  // Returns the write of `text`, which lasts as long as `lease` does.
  Operation Put(const std::string& key, const std::string& text, int64_t lease) const;

  const std::string job_id_, secret_;
  const std::string all_, agents_, leader_, decision_;
};

// Returns the end of the range of all keys that begin with `prefix`, which ends in a slash.
std::string EndOf(std::string prefix);

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_JOB_KEYS_H_
