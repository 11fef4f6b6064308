#include "lockstep/base/posix/socket_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <nss.h>
#include <stddef.h>
#include <string.h>
#include <sys/un.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/static_program.h"

namespace lockstep {
namespace {

// Asks /etc/hosts and DNS only: /etc/nsswitch.conf may name modules to load.
bool LookUpWithoutModules() { return IsStaticProgram() && __nss_configure_lookup("hosts", "files dns") == 0; }

}  // namespace

int SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return -1;
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, int port) {
  [[maybe_unused]] static const bool without_modules = LookUpWithoutModules();
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const char* const name = host.empty() ? nullptr : host.c_str();
  const int error = getaddrinfo(name, absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return absl::NotFoundError(gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    memcpy(&addresses.emplace_back().storage, each->ai_addr, each->ai_addrlen);
    addresses.back().size = each->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host, int port) {
  auto addresses = Resolve(host, port);
  if (addresses.ok()) return addresses;
  return absl::NotFoundError(absl::StrCat("host \"", host, "\" is unknown: ", addresses.status().message()));
}

SocketAddress AbstractAddress(const std::string& name) {
  SocketAddress address;
  auto& local = reinterpret_cast<sockaddr_un&>(address.storage);
  local.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(local.sun_path) - 1);
  memcpy(local.sun_path + 1, name.data(), bytes);  // a leading zero: no file
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return address;
}

SocketAddress PathAddress(const std::string& path) {
  SocketAddress address;
  auto& local = reinterpret_cast<sockaddr_un&>(address.storage);
  if (path.size() >= sizeof(local.sun_path)) {
    errno = ENAMETOOLONG;
    return address;
  }
  local.sun_family = AF_UNIX;
  memcpy(local.sun_path, path.data(), path.size());
  address.size = sizeof(local);
  return address;
}

SocketAddress BoundAddress(int fd) {
  SocketAddress address;
  socklen_t size = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &size) == 0) address.size = size;
  return address;
}

}  // namespace lockstep
