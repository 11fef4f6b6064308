#include "lockstep/tools/launch/internal/master_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::launch::internal {
namespace {

absl::Status SocketError(const char* call) {
  return absl::ResourceExhaustedError(
      absl::StrCat("launch: no port for rank 0's store: ", call, ": ", strerror(errno)));
}

absl::StatusOr<MasterSocket> BindIpv4(in_addr_t address, bool reuse = false) {
  MasterSocket result;
  result.fd = AboveStdio(UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  if (!result.fd.valid()) return SocketError("socket");
  const int value = reuse;
  setsockopt(result.fd.get(), SOL_SOCKET, SO_REUSEADDR, &value, sizeof(value));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(address);
  socklen_t length = sizeof(name);
  if (bind(result.fd.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) return SocketError("bind");
  if (getsockname(result.fd.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) return SocketError("getsockname");
  result.port = ntohs(name.sin_port);
  return result;
}

absl::StatusOr<MasterSocket> ListenOn(in_addr_t address) {
  LOCKSTEP_ASSIGN_OR_RETURN(MasterSocket result, BindIpv4(address));
  if (listen(result.fd.get(), SOMAXCONN) != 0) return SocketError("listen");
  return result;
}

}  // namespace

absl::StatusOr<MasterSocket> ListenOnLoopback() { return ListenOn(INADDR_LOOPBACK); }

absl::StatusOr<MasterSocket> ListenOnAllAddresses() { return ListenOn(INADDR_ANY); }

absl::StatusOr<MasterSocket> HoldPort() { return BindIpv4(INADDR_ANY, true); }

absl::StatusOr<int> FreePort() {
  LOCKSTEP_ASSIGN_OR_RETURN(const MasterSocket probe, BindIpv4(INADDR_ANY));
  return probe.port;
}

}  // namespace lockstep::launch::internal
