#include "lockstep/base/posix/listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/status.h"

namespace lockstep {
namespace {

// Invalid, with the errno of the last address, if this host can listen at none. Stops at a port that is in use.
UniqueFd ListenAtFirst(const std::vector<SocketAddress>& addresses, const ListenOptions& options) {
  for (const SocketAddress& address : addresses) {
    UniqueFd fd = ListenAt(address, options);
    if (fd.valid() || errno == EADDRINUSE) return fd;
  }
  return UniqueFd();
}

}  // namespace

UniqueFd Bind(const SocketAddress& address, const ListenOptions& options) {
  const int type = SOCK_STREAM | SOCK_CLOEXEC | (options.blocks ? 0 : SOCK_NONBLOCK);
  UniqueFd fd = AboveStdio(UniqueFd(socket(address.family(), type, 0)));
  if (!fd.valid()) return fd;
  const auto set = [&fd](int level, int option, int value) {
    setsockopt(fd.get(), level, option, &value, sizeof(value));
  };
  if (options.reuses_port) set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
  return bind(fd.get(), address.get(), address.size) == 0 ? std::move(fd) : UniqueFd();
}

UniqueFd ListenAt(const SocketAddress& address, const ListenOptions& options) {
  UniqueFd fd = Bind(address, options);
  return fd.valid() && listen(fd.get(), SOMAXCONN) == 0 ? std::move(fd) : UniqueFd();
}

absl::StatusOr<UniqueFd> ListenOn(const std::string& host, int port, const ListenOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveHost(host, port));
  UniqueFd fd = ListenAtFirst(addresses, options);
  if (!fd.valid() && errno == EADDRNOTAVAIL) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SocketAddress> every, Resolve("", port));
    fd = ListenAtFirst(every, options);
  }
  if (fd.valid()) return fd;
  const int error = errno;
  return DescriptorError(absl::StrCat("cannot listen on ", port == 0 ? host : WithPort(host, absl::StrCat(port))),
                         error,
                         error == EADDRINUSE ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kUnavailable);
}

}  // namespace lockstep
