#include "lockstep/comm/watch/internal/endpoint.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::internal {
namespace {

constexpr char kNoEndpoint[] = "!";
constexpr size_t kMostReasonBytes = 4096;
constexpr size_t kMostExcerptBytes = 100;

// Waits for a connection under way, and sets errno if it fails.
bool Connected(int fd, absl::Time deadline) {
  pollfd waited = {fd, POLLOUT, 0};
  int ready = 0;
  do {
    ready = poll(&waited, 1, PollTimeout(deadline - absl::Now()));
  } while (ready < 0 && errno == EINTR);
  int error = ready == 0 ? ETIMEDOUT : 0;
  socklen_t length = sizeof(error);
  if (ready > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

// Invalid, with errno, if it fails.
UniqueFd ConnectTo(const SocketAddress& address, absl::Time deadline) {
  UniqueFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || connect(fd.get(), address.get(), address.size) == 0) return fd;
  // A Unix socket whose queue is full returns EAGAIN at once, so the connection is retried.
  return errno == EINPROGRESS && Connected(fd.get(), deadline) ? std::move(fd) : UniqueFd();
}

UniqueFd ConnectToAbstract(const std::string& name, absl::Time deadline) {
  const SocketAddress address = AbstractAddress(name);
  while (true) {
    UniqueFd fd = ConnectTo(address, deadline);
    if (fd.valid() || errno != EAGAIN || absl::Now() >= deadline) return fd;
    absl::SleepFor(absl::Milliseconds(1));
  }
}

absl::StatusOr<UniqueFd> ConnectToNetwork(const Endpoint& endpoint, absl::Time deadline) {
  int port = 0;
  if (!absl::SimpleAtoi(endpoint.name, &port)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(endpoint.name), "\" is not a port"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveHost(endpoint.host, port));
  for (const SocketAddress& address : addresses) {
    UniqueFd fd = ConnectTo(address, deadline);
    if (fd.valid()) return fd;
  }
  return UniqueFd();
}

}  // namespace

std::string EncodeEndpoint(const Endpoint& endpoint) {
  return absl::StrJoin({endpoint.host, endpoint.name, endpoint.token}, "|");
}

std::string EncodeNoEndpoint(absl::string_view reason) { return absl::StrCat(kNoEndpoint, reason); }

absl::StatusOr<Endpoint> DecodeEndpoint(absl::string_view text) {
  if (absl::ConsumePrefix(&text, kNoEndpoint)) return absl::AbortedError(text.substr(0, kMostReasonBytes));
  const std::vector<std::string> fields = absl::StrSplit(text, '|');
  if (fields.size() != 3 || fields[1].empty() || fields[2].size() != 32) {
    return absl::InvalidArgumentError(absl::StrCat("expected where the hub listens, found \"",
                                                   absl::CHexEscape(text.substr(0, kMostExcerptBytes)), "\""));
  }
  return Endpoint{fields[0], fields[1], fields[2]};
}

std::string RandomToken() {
  char bytes[16];
  size_t got = 0;
  while (got < sizeof(bytes)) {
    const ssize_t more = getrandom(bytes + got, sizeof(bytes) - got, 0);
    if (more > 0) got += more;
  }
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

absl::StatusOr<UniqueFd> ListenOnThisHost(Endpoint& endpoint) {
  endpoint.name = absl::StrCat("lockstep-watch-", RandomToken());
  UniqueFd fd = ListenAt(AbstractAddress(endpoint.name));
  if (!fd.valid()) return DescriptorError("cannot listen on an abstract Unix socket", errno);
  return fd;
}

absl::StatusOr<UniqueFd> ListenOnNetwork(const std::string& host, Endpoint& endpoint) {
  LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd fd, ListenOn(host, /*port=*/0));
  endpoint.host = host;
  endpoint.name = absl::StrCat(BoundAddress(fd.get()).port());
  return fd;
}

absl::StatusOr<UniqueFd> Connect(const std::string& whom, const Endpoint& endpoint, absl::Time deadline) {
  UniqueFd fd;
  if (endpoint.host.empty()) {
    fd = ConnectToAbstract(endpoint.name, deadline);
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(fd, ConnectToNetwork(endpoint, deadline));
  }
  if (fd.valid()) {
    TuneConnection(fd.get());
    return fd;
  }
  const int error = errno;
  const std::string where = endpoint.host.empty() ? "" : absl::StrCat(" at ", WithPort(endpoint.host, endpoint.name));
  const absl::Status status = DescriptorError(absl::StrCat("cannot connect to ", whom, where), error);
  return absl::Now() < deadline ? status : absl::DeadlineExceededError(status.message());
}

}  // namespace lockstep::comm::internal
