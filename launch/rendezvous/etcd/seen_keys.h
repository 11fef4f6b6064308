// The job's keys at etcd, as far as an agent knows them, and its view of the rendezvous. Without requests and clocks.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_SEEN_KEYS_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_SEEN_KEYS_H_

#include <stdint.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "lockstep/launch/rendezvous/etcd/etcd_client.h"
#include "lockstep/launch/rendezvous/etcd/job_keys.h"
#include "lockstep/launch/rendezvous/shared_view.h"

namespace lockstep::launch::etcd {

// Thread-compatible.
class SeenKeys {
 public:
  // The decision at etcd.
  struct Decision {
    int64_t revision = 0;  // 0: none, or unknown
    int64_t lease = 0;     // 0: none
  };

  // `keys` and `view` must outlive the object. `on_notice` may be null. It is called once for each key whose signature is
  // wrong.
  SeenKeys(const JobKeys* keys, SharedView* view, std::function<void(const std::string&)> on_notice);

  // All keys have been read. PermissionDenied: the signature of the leader's key is wrong.
  absl::Status Replace(const RangeReply& reply);
  // A key has changed. A change that is older than what is known changes nothing. PermissionDenied: as above.
  absl::Status Apply(const WatchEvent& event);

  // nullopt: nobody leads.
  const std::optional<KeyValue>& leader() const { return leader_; }
  Decision& decision() { return decision_; }

 private:
  absl::Status ApplyLeader(const WatchEvent& event);
  void ApplyDecision(const WatchEvent& event);
  void ApplyAgent(const std::string& id, const WatchEvent& event);
  void EraseAgentsBut(const std::set<std::string>& keys);
  void Notice(const std::string& key, const absl::Status& status);

  const JobKeys* const keys_;
  SharedView* const view_;
  const std::function<void(const std::string&)> on_notice_;
  std::optional<KeyValue> leader_;
  int64_t leader_revision_ = 0;  // of the last change that is known
  Decision decision_;
  std::map<std::string, int64_t> agent_revisions_;  // mod revisions by id
  std::set<std::string> noticed_;                   // keys
};

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_SEEN_KEYS_H_
