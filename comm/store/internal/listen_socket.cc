#include "lockstep/comm/store/internal/listen_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::internal {
namespace {

absl::StatusOr<SocketAddress> AddressOf(int fd) {
  const SocketAddress address = BoundAddress(fd);
  if (address.size > 0) return address;
  return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, " is not a socket: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<UniqueFd> BindListenSocket(const std::string& host, int port) {
  auto fd = ListenOn(host, port, {.blocks = true, .reuses_port = true});
  if (!absl::IsAlreadyExists(fd.status())) return fd;
  return absl::FailedPreconditionError(
      absl::StrCat(fd.status().message(), " (by another program, another job, or a second rank 0 of this one)"));
}

absl::Status CheckHost(const std::string& host) { return ResolveHost(host, 0).status(); }

absl::StatusOr<std::string> OwnHost(int fd) {
  LOCKSTEP_ASSIGN_OR_RETURN(const SocketAddress address, AddressOf(fd));
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  if (address.family() == AF_INET && v4.sin_addr.s_addr == htonl(INADDR_ANY)) return "127.0.0.1";
  if (address.family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) return "::1";
  char host[NI_MAXHOST];
  const int error = getnameinfo(address.get(), address.size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  if (error == 0) return host;
  return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, " has no address: ", gai_strerror(error)));
}

absl::StatusOr<int> BoundPort(int fd) {
  LOCKSTEP_ASSIGN_OR_RETURN(const SocketAddress address, AddressOf(fd));
  if (address.port() >= 0) return address.port();
  return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, " is not a TCP socket"));
}

}  // namespace lockstep::comm::internal
