#include "lockstep/comm/internal/tune_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace lockstep::comm::internal {

void TuneConnection(int fd) {
  int family = 0;
  socklen_t length = sizeof(family);
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
  if (family == AF_UNIX) return;
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 20000);
}

}  // namespace lockstep::comm::internal
