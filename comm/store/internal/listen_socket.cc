#include "lockstep/comm/store/internal/listen_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::internal {
namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<AddressList> Resolve(const char* host, int port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host, absl::StrCat(port).c_str(), &hints, &list);
  if (error)
    return absl::NotFoundError(absl::StrCat("host \"", host ? host : "", "\" is unknown: ", gai_strerror(error)));
  return AddressList(list, freeaddrinfo);
}

// The bound socket, or -1 with errno set.
int Bind(const addrinfo& address) {
  const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
  if (fd < 0) return -1;
  // Allows a port whose last connections are in TIME_WAIT, but not a port with a listener.
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// The first of `list` that can be bound, or -1 with the last errno.
int BindFirst(const AddressList& list) {
  for (const addrinfo* address = list.get(); address; address = address->ai_next) {
    const int fd = Bind(*address);
    if (fd >= 0 || errno == EADDRINUSE) return fd;
  }
  return -1;
}

absl::StatusOr<sockaddr_storage> BoundAddress(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) return address;
  return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, " is not a socket: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<int> BindListenSocket(const std::string& host, int port) {
  LOCKSTEP_ASSIGN_OR_RETURN(const AddressList list, Resolve(host.c_str(), port));
  int fd = BindFirst(list);
  if (fd < 0 && errno == EADDRNOTAVAIL) {
    LOCKSTEP_ASSIGN_OR_RETURN(const AddressList any, Resolve(nullptr, port));
    fd = BindFirst(any);
  }
  if (fd >= 0) return fd;
  const int error = errno;
  const absl::Status status =
      DescriptorError(absl::StrCat("cannot listen on ", WithPort(host, absl::StrCat(port))), error);
  if (error != EADDRINUSE) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(status.message(), " (by another program, another job, or a second rank 0 of this one)"));
}

absl::Status CheckHost(const std::string& host) { return Resolve(host.c_str(), 0).status(); }

absl::StatusOr<std::string> OwnHost(int fd) {
  LOCKSTEP_ASSIGN_OR_RETURN(sockaddr_storage address, BoundAddress(fd));
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  if (address.ss_family == AF_INET && v4.sin_addr.s_addr == htonl(INADDR_ANY)) return "127.0.0.1";
  if (address.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) return "::1";
  char host[NI_MAXHOST];
  const int error = getnameinfo(reinterpret_cast<sockaddr*>(&address), sizeof(address), host, sizeof(host), nullptr, 0,
                                NI_NUMERICHOST);
  if (error == 0) return host;
  return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, " has no address: ", gai_strerror(error)));
}

absl::StatusOr<int> BoundPort(int fd) {
  LOCKSTEP_ASSIGN_OR_RETURN(sockaddr_storage address, BoundAddress(fd));
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, " is not a TCP socket"));
}

}  // namespace lockstep::comm::internal
