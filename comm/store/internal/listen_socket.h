#ifndef LOCKSTEP_COMM_STORE_INTERNAL_LISTEN_SOCKET_H_
#define LOCKSTEP_COMM_STORE_INTERNAL_LISTEN_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::internal {

// A socket for a store's server, which blocks, from ListenOn(). FailedPrecondition: the port is in use. NotFound: the
// host name is unknown.
absl::StatusOr<UniqueFd> BindListenSocket(const std::string& host, int port);

// NotFound: the host name is unknown. Blocks as long as the system's resolver does.
absl::Status CheckHost(const std::string& host);

// The numeric address at which this machine reaches the socket `fd`: its own, or loopback if it is bound to every
// interface.
absl::StatusOr<std::string> OwnHost(int fd);

// The port that `fd` is bound to.
absl::StatusOr<int> BoundPort(int fd);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_STORE_INTERNAL_LISTEN_SOCKET_H_
