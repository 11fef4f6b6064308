// A rendezvous whose agents meet at an etcd cluster. It outlives every agent, the leader included.
//
// The keys of a job are below /lockstep/launch/<job id>/:
//
//   agents/<agent id>   the agent's text, with the agent's lease
//   leader              the id of the agent that leads, with its lease. It is created in a transaction, by one agent
//   decision            the decision, with its own lease
//
// The leader writes a decision in a transaction that compares the create revision of `leader`, so an agent that has
// lost the lead, even without knowing it, has no effect. Only the leader reads the agents' texts.
//
// The leader keeps the decision's lease alive, and its successor goes on with that. The decision is therefore there as
// long as anybody leads, and for `timeout` after that: an agent that was out of reach meanwhile still reads it. An
// agent that joins while nobody leads and nobody has posted begins a new job: it deletes the decision that is left. If
// a job is started again under the same id before the leases of its killed agents have expired (`ttl`), the new agents
// see the old decision until one of them decides; a decision should name the agents that it is for.
//
// etcd's own TLS and authentication protect the keys. With a job secret each text is signed, too (signed_text.h).

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_RENDEZVOUS_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_RENDEZVOUS_H_

#include <stdint.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/launch/rendezvous/rendezvous.h"

namespace lockstep::launch::etcd {

struct EtcdOptions {
  // "http://host:port", or "https://host:port" if `ca` or `cert` is given. Each agent begins at another one, and goes on
  // to the next if one does not answer.
  std::vector<std::string> endpoints;
  std::string job_id;
  std::string agent_id;        // no other agent of the job has it
  std::string secret;          // of the job; empty: texts are not signed
  std::string ca, cert, key;   // files in PEM format; empty: the system's authorities, and no certificate
  std::string user, password;  // empty: no authentication

  // An agent that is out of reach for longer is removed. At least 1 s. etcd may take longer: 2 s, or as long as its
  // members need to elect a leader. While they elect one, no agent is heard: with less than 3 s, all would be away.
  absl::Duration ttl = absl::Seconds(4);
  // How long one request may be repeated in vain before the status is Unavailable. Longer than `ttl`.
  absl::Duration timeout = absl::Seconds(60);
  // The time for repeated requests until etcd has answered for the first time.
  absl::Duration join_timeout = absl::Seconds(60);

  // Gets a line about a text that is ignored because its signature is wrong. Called on another thread, once for each
  // key.
  std::function<void(const std::string& notice)> on_notice;
  // Gets the agent's lease before a key has it. Called on another thread, again if the agent needs another lease.
  std::function<void(int64_t lease)> on_lease;
};

// One thread for each object does all the work.
class EtcdRendezvous : public Rendezvous {
 public:
  // Does not wait for etcd. InvalidArgument: an option is missing or malformed, or a file of TLS cannot be read; the
  // message names it. NotFound: libcurl is missing. ResourceExhausted: no descriptor or thread is left.
  //
  // View::status is also InvalidArgument if a text is longer than etcd takes (1.5 MiB by default), PermissionDenied if
  // etcd refuses the user or the password, or the user may not write the keys, and FailedPrecondition if at first the
  // certificates of as many servers as there are do not fit.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Join(const EtcdOptions& options);

  // Removes the keys of an agent whose process was killed, so that the others need not wait until its lease ends. Also
  // OK if the lease has ended. `options` are the agent's, and the ids and callbacks are not used. Blocks until a server
  // has done so, for `options.ttl` and for 5 s at most, and then returns the last error; Unavailable if none answers.
  // NotFound: libcurl is missing.
  static absl::Status EndLease(const EtcdOptions& options, int64_t lease);
};

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_ETCD_RENDEZVOUS_H_
