#include "lockstep/base/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::string NumericHost(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

// Connecting a UDP socket sends nothing, but gives the socket the address at which the route begins.
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

std::string WithPort(const std::string& host, const std::string& port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + port;
}

void AskForAnswers(int fd) {
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 8);
}

int MillisecondsWithoutAnswer(int fd) {
  tcp_info info = {};
  socklen_t length = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  // A receiver without room for more answers too.
  return info.tcpi_retransmits > 0 || info.tcpi_probes > 0 ? static_cast<int>(info.tcpi_last_ack_recv) : 0;
}

void TuneConnection(int fd) {
  int family = 0;
  socklen_t length = sizeof(family);
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
  if (family == AF_UNIX) return;
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  AskForAnswers(fd);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 20000);
}

}  // namespace lockstep
