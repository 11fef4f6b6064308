#include "lockstep/comm/internal/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep::comm::internal {
namespace {

std::string NumericHost(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

// A UDP socket that is connected sends nothing, but has got the address that the route begins at.
std::string LocalAddressTowards(const addrinfo& peer) {
  const int fd = socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage local = {};
  socklen_t length = sizeof(local);
  auto* const address = reinterpret_cast<sockaddr*>(&local);
  const bool routed = connect(fd, peer.ai_addr, peer.ai_addrlen) == 0 && getsockname(fd, address, &length) == 0;
  close(fd);
  return routed ? NumericHost(address, length) : "";
}

}  // namespace

std::string LocalAddressTowards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* peer = found; peer && address.empty(); peer = peer->ai_next) {
    address = LocalAddressTowards(*peer);
  }
  freeaddrinfo(found);
  return address;
}

}  // namespace lockstep::comm::internal
