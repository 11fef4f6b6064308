#ifndef LOCKSTEP_COMM_INTERNAL_LISTEN_SOCKET_H_
#define LOCKSTEP_COMM_INTERNAL_LISTEN_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"

namespace lockstep::comm::internal {

// A TCP socket bound to `host`:`port` (0: any free port), closed on exec; the caller owns the descriptor. It is bound
// to the one interface that `host` names, so a store at 127.0.0.1 cannot be reached from outside; only where `host` is
// no address of this machine (behind address translation) to every interface. FailedPrecondition if the port is in use,
// NotFound if the host name is unknown.
absl::StatusOr<int> BindListenSocket(const std::string& host, int port);

// The port that `fd` is bound to.
absl::StatusOr<int> BoundPort(int fd);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_LISTEN_SOCKET_H_
