// A rendezvous over TCP: the agent at the endpoint serves the others, and leads. If it ends, the job ends.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_RENDEZVOUS_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_RENDEZVOUS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/crypto/job_secret.h"
#include "lockstep/launch/rendezvous/rendezvous.h"

namespace lockstep::launch {

struct TcpOptions {
  std::string host;  // the endpoint: a name or an address of the node that serves
  int port = 29400;
  std::string job_id = "none";  // an agent of another job is refused
  std::string agent_id;
  std::optional<crypto::JobSecret>
      secret;                   // the same for all; without one, anybody who reaches the endpoint can take part
  std::optional<bool> is_host;  // whether this agent serves; by default, whether the endpoint is on this node
  absl::Duration join_timeout = absl::Minutes(10);   // how long the endpoint may not answer at first
  absl::Duration time_to_live = absl::Seconds(1.5);  // how long it may be silent before this agent is away
  // Gets a line about a launcher that was refused. Called on another thread, once for each address.
  std::function<void(const std::string& notice)> on_notice;
};

// Serves or connects. An agent that connects returns at once, and connects on its own thread. An agent that the
// host has not heard from for 1.5 times the time to live is gone for it. Before that, the agent itself knows that it is
// away. If it hears the host again within GuestPatience() (protocol.h), it is back. Errors: InvalidArgument: the
// endpoint is on this node, is_host is true, or not given, and the port is taken by another program than a launcher.
// ResourceExhausted.
struct TcpJoined {
  std::unique_ptr<Rendezvous> rendezvous;
  bool is_host = false;
};
absl::StatusOr<TcpJoined> JoinTcp(const TcpOptions& options);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_TCP_RENDEZVOUS_H_
