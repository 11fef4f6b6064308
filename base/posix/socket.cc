#include "lockstep/base/posix/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep {
namespace {

std::string NumericHost(const SocketAddress& address) {
  char host[NI_MAXHOST] = "";
  getnameinfo(address.get(), address.size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

// Connecting a UDP socket sends nothing, but gives the socket the address at which the route begins.
std::string LocalAddressTowards(const SocketAddress& peer) {
  const UniqueFd fd(socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || connect(fd.get(), peer.get(), peer.size) != 0) return "";
  return NumericHost(BoundAddress(fd.get()));
}

}  // namespace

std::string LocalAddressTowards(const std::string& host) {
  const auto found = Resolve(host, 9);
  if (host.empty() || !found.ok()) return "";
  for (const SocketAddress& peer : *found) {
    std::string address = LocalAddressTowards(peer);
    if (!address.empty()) return address;
  }
  return "";
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
