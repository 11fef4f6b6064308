#include "lockstep/comm/store/internal/tcp_connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/socket.h"

namespace lockstep::comm::internal {
namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<AddressList> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &list);
  if (error) return absl::NotFoundError(absl::StrCat("host \"", host, "\" is unknown: ", gai_strerror(error)));
  return AddressList(list, freeaddrinfo);
}

// Whether `events` of `fd` have occurred by `deadline`. An end and an error count as any event.
bool Await(int fd, short events, absl::Time deadline) {
  while (true) {
    pollfd waited = {fd, events, 0};
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    // Rounded up, so that a wait that is cut short is not repeated without a pause.
    const int64_t left_ms = absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
    const int ready = poll(&waited, 1, static_cast<int>(std::min<int64_t>(left_ms, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 && absl::Now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return true;  // the next call returns the error
  }
}

// 0, or the errno.
int ConnectBy(int fd, const addrinfo& address, absl::Time deadline) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!Await(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

absl::StatusOr<std::unique_ptr<TcpConnection>> ConnectTo(const addrinfo& address, absl::Time deadline) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return DescriptorError("opening a socket", errno);
  auto connection = std::make_unique<TcpConnection>(fd);
  const int error = ConnectBy(fd, address, deadline);
  if (error == ETIMEDOUT) return absl::DeadlineExceededError("no answer");
  if (error != 0) return absl::UnavailableError(std::strerror(error));
  TuneConnection(fd);
  return connection;
}

absl::Status Ended(ssize_t result) {
  if (result == 0 || errno == ECONNRESET || errno == EPIPE) return absl::UnavailableError("the connection closed");
  return absl::UnavailableError(absl::StrCat("the connection broke (", std::strerror(errno), ")"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpConnection>> TcpConnection::Connect(const std::string& host, int port,
                                                                      absl::Time deadline) {
  auto list = Resolve(host, port);
  if (!list.ok()) return list.status();
  int left = 0;
  for (const addrinfo* address = list->get(); address; address = address->ai_next) ++left;
  absl::StatusOr<std::unique_ptr<TcpConnection>> connection = absl::UnavailableError("no address");
  for (const addrinfo* address = list->get(); address; address = address->ai_next, --left) {
    // An address that does not answer leaves time for the next ones.
    const absl::Time now = absl::Now();
    connection = ConnectTo(*address, now + (deadline - now) / left);
    if (connection.ok()) break;
  }
  return connection;
}

TcpConnection::TcpConnection(int fd) : fd_(fd) {}
TcpConnection::~TcpConnection() { close(fd_); }

absl::Status TcpConnection::Send(absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(sent);
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Ended(sent);
    if (!Await(fd_, POLLOUT, deadline)) return absl::DeadlineExceededError("no answer");
  }
  return absl::OkStatus();
}

absl::Status TcpConnection::Receive(void* bytes, size_t size, absl::Time deadline) {
  char* next = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t received = recv(fd_, next, size, 0);
    if (received > 0) {
      next += received;
      size -= received;
      continue;
    }
    if (received < 0 && errno == EINTR) continue;
    if (received == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return Ended(received);
    if (!Await(fd_, POLLIN, deadline)) return absl::DeadlineExceededError("no answer");
  }
  return absl::OkStatus();
}

bool TcpConnection::AwaitInput(absl::Time deadline) const { return Await(fd_, POLLIN, deadline); }

}  // namespace lockstep::comm::internal
