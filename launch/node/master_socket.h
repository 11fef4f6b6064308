// A TCP port for the store of rank 0.

#ifndef LOCKSTEP_LAUNCH_NODE_MASTER_SOCKET_H_
#define LOCKSTEP_LAUNCH_NODE_MASTER_SOCKET_H_

#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

struct MasterSocket {
  UniqueFd fd;
  int port = 0;
};

// A socket that listens on 127.0.0.1 at a port that was free; nobody else can take the port while it is open.
absl::StatusOr<MasterSocket> ListenOnLoopback();

// A socket as ListenOnLoopback() makes it, on every address of this host.
absl::StatusOr<MasterSocket> ListenOnAllAddresses();

// A socket that is bound to a port that was free on every interface, and does not listen. While it is open, the system
// gives the port to nobody who asks for any port, but a program that asks for this one, with SO_REUSEADDR, can listen.
absl::StatusOr<MasterSocket> HoldPort();

// A port that is free on every interface at this moment. Somebody else may take it before the caller does.
absl::StatusOr<int> FreePort();

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_MASTER_SOCKET_H_
