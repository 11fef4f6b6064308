// Sockets that listen.

#ifndef LOCKSTEP_BASE_POSIX_LISTEN_H_
#define LOCKSTEP_BASE_POSIX_LISTEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep {

struct ListenOptions {
  bool blocks = false;  // accept()
  // Takes a port whose last connections are in TIME_WAIT, or that another such socket holds without listening.
  bool reuses_port = false;
};

// A socket that is bound to `address`, closes on exec, and takes the place of neither stdin, stdout nor stderr. IPv6's
// address for every interface includes IPv4. Invalid, with errno set, if it cannot be made.
UniqueFd Bind(const SocketAddress& address, const ListenOptions& options = {});

// A socket as Bind() makes it, which listens.
UniqueFd ListenAt(const SocketAddress& address, const ListenOptions& options = {});

// Listens on the interface of `host`, a name or an address, and there alone, so a socket at 127.0.0.1 is not reachable
// from other hosts. If this host does not have that address (behind address translation), on every interface. `port` 0:
// any that is free. NotFound: as ResolveHost(). AlreadyExists: the port is in use. Otherwise as DescriptorError().
// These errors say "cannot listen on 10.0.0.1:29500: Permission denied", without a port that is 0.
absl::StatusOr<UniqueFd> ListenOn(const std::string& host, int port, const ListenOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_LISTEN_H_
