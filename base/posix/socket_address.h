// The addresses of sockets.

#ifndef LOCKSTEP_BASE_POSIX_SOCKET_ADDRESS_H_
#define LOCKSTEP_BASE_POSIX_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// As bind() and connect() take it:
//
//   bind(fd, address.get(), address.size);
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // -1 where the address is not one of the Internet protocols.
  int port() const;
};

// The addresses of `host`, a name or an address, in the order in which they should be tried; never empty. With an empty
// `host`, the addresses that mean every interface of this host. Blocks as long as the system's resolver does. NotFound
// with the reason alone: "Name or service not known".
absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, int port);

// Resolves as Resolve() does, and names the host in the error: "host "node7" is unknown: Name or service not known".
absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host, int port);

// A Unix socket's without a file. It goes with the socket, and other network namespaces do not see it. `name` has at
// most 107 bytes; more are cut off.
SocketAddress AbstractAddress(const std::string& name);

// A Unix socket's at `path`. Of size 0, with errno set, if the path is longer than such an address can be, 107 bytes.
SocketAddress PathAddress(const std::string& path);

// The address to which the socket `fd` is bound. Of size 0, with errno set, if `fd` is not a socket.
SocketAddress BoundAddress(int fd);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_SOCKET_ADDRESS_H_
