#ifndef LOCKSTEP_COMM_RENDEZVOUS_LISTEN_SOCKET_H_
#define LOCKSTEP_COMM_RENDEZVOUS_LISTEN_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::comm::internal {

// A TCP socket bound to `host`:`port` (0: any free port), closed on exec; the caller owns the descriptor. It is bound
// to the one interface that `host` names, so a store at 127.0.0.1 cannot be reached from outside; only where `host` is
// no address of this machine (behind address translation) to every interface. FailedPrecondition if the port is in use,
// NotFound if the host name is unknown.
absl::StatusOr<int> BindListenSocket(const std::string& host, int port);

// NotFound if the host name is unknown; blocks as long as the system's resolver does.
absl::Status CheckHost(const std::string& host);

// The port that `fd` is bound to.
absl::StatusOr<int> BoundPort(int fd);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_RENDEZVOUS_LISTEN_SOCKET_H_
