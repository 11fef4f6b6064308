#include "lockstep/comm/store/internal/tcp_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::internal {
namespace {

// Returns whether `events` of `fd` have occurred by `deadline`. An end and an error count as any event.
bool Await(int fd, short events, absl::Time deadline) {
  while (true) {
    pollfd waited = {fd, events, 0};
    const int ready = poll(&waited, 1, PollTimeout(deadline - absl::Now()));
    if (ready > 0) return true;
    if (ready == 0 && absl::Now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return true;  // the next call returns the error
  }
}

// 0, or the errno.
int ConnectBy(int fd, const SocketAddress& address, absl::Time deadline) {
  if (connect(fd, address.get(), address.size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!Await(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

absl::StatusOr<std::unique_ptr<TcpConnection>> ConnectTo(const SocketAddress& address, absl::Time deadline) {
  UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return DescriptorError("opening a socket", errno);
  const int error = ConnectBy(fd.get(), address, deadline);
  if (error == ETIMEDOUT) return absl::DeadlineExceededError("no answer");
  if (error != 0) return absl::UnavailableError(std::strerror(error));
  TuneConnection(fd.get());
  return std::make_unique<TcpConnection>(std::move(fd));
}

absl::Status Ended(ssize_t result) {
  if (result == 0 || errno == ECONNRESET || errno == EPIPE) return absl::UnavailableError("the connection closed");
  return absl::UnavailableError(absl::StrCat("the connection broke (", std::strerror(errno), ")"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpConnection>> TcpConnection::Connect(const std::string& host, int port,
                                                                      absl::Time deadline, absl::Duration limit) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveHost(host, port));
  deadline = std::min(deadline, absl::Now() + limit);
  int left = static_cast<int>(addresses.size());
  absl::Status error = absl::DeadlineExceededError("no answer");
  for (const SocketAddress& address : addresses) {
    // An address that does not answer leaves time for the next ones.
    const absl::Time now = absl::Now();
    auto connection = ConnectTo(address, now + (deadline - now) / left--);
    if (connection.ok()) return connection;
    if (!absl::IsDeadlineExceeded(connection.status())) error = connection.status();  // its host is there
  }
  return error;
}

TcpConnection::TcpConnection(UniqueFd fd) : fd_(std::move(fd)) {}

absl::Status TcpConnection::Send(absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(sent);
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Ended(sent);
    if (!Await(fd_.get(), POLLOUT, deadline)) return absl::DeadlineExceededError("no answer");
  }
  return absl::OkStatus();
}

absl::Status TcpConnection::Receive(void* bytes, size_t size, absl::Time deadline) {
  char* next = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t received = recv(fd_.get(), next, size, 0);
    if (received > 0) {
      next += received;
      size -= received;
      continue;
    }
    if (received < 0 && errno == EINTR) continue;
    if (received == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return Ended(received);
    if (!Await(fd_.get(), POLLIN, deadline)) return absl::DeadlineExceededError("no answer");
  }
  return absl::OkStatus();
}

bool TcpConnection::AwaitInput(absl::Time deadline) const { return Await(fd_.get(), POLLIN, deadline); }

}  // namespace lockstep::comm::internal
