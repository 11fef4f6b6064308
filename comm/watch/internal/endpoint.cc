#include "lockstep/comm/watch/internal/endpoint.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::internal {
namespace {

constexpr char kNoEndpoint[] = "!";
constexpr size_t kMostReasonBytes = 4096;
constexpr size_t kMostExcerptBytes = 100;
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<AddressList> Resolve(const char* host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host, port.c_str(), &hints, &list)) {
    return absl::NotFoundError(absl::StrCat("host \"", host ? host : "", "\" is unknown: ", gai_strerror(error)));
  }
  return AddressList(list, freeaddrinfo);
}

sockaddr_un AbstractAddress(const std::string& name, socklen_t* length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  memcpy(address.sun_path + 1, name.data(), size);  // a leading zero: no file
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return address;
}

// Returns `fd`, or closes it if `ok` is false. Keeps errno.
int FdIf(int fd, bool ok) {
  if (ok) return fd;
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

int BindFirst(const AddressList& list) {
  for (const addrinfo* address = list.get(); address; address = address->ai_next) {
    int fd = socket(address->ai_family, kSocketFlags, 0);
    fd = FdIf(fd, fd >= 0 && bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0);
    if (fd >= 0) return fd;
  }
  return -1;
}

std::string BoundPort(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  // The port is at the same place in both families.
  return absl::StrCat(ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port));
}

// Waits for a connection under way, and sets errno if it fails.
bool Connected(int fd, absl::Time deadline) {
  pollfd waited = {fd, POLLOUT, 0};
  int ready = 0;
  do {
    const int64_t left_ms = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - absl::Now()));
    ready = poll(&waited, 1, static_cast<int>(std::min<int64_t>(left_ms, 1 << 30)));
  } while (ready < 0 && errno == EINTR);
  int error = ready == 0 ? ETIMEDOUT : 0;
  socklen_t length = sizeof(error);
  if (ready > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

int ConnectTo(int family, const sockaddr* address, socklen_t length, absl::Time deadline) {
  const int fd = socket(family, kSocketFlags, 0);
  if (fd < 0) return -1;
  if (connect(fd, address, length) == 0) return fd;
  // A Unix socket whose queue is full returns EAGAIN at once, so the connection is retried.
  return FdIf(fd, errno == EINPROGRESS && Connected(fd, deadline));
}

int ConnectToAbstract(const std::string& name, absl::Time deadline) {
  socklen_t length = 0;
  const sockaddr_un address = AbstractAddress(name, &length);
  while (true) {
    const int fd = ConnectTo(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), length, deadline);
    if (fd >= 0 || errno != EAGAIN || absl::Now() >= deadline) return fd;
    absl::SleepFor(absl::Milliseconds(1));
  }
}

absl::StatusOr<int> ConnectToNetwork(const Endpoint& endpoint, absl::Time deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(const AddressList list, Resolve(endpoint.host.c_str(), endpoint.name));
  for (const addrinfo* address = list.get(); address; address = address->ai_next) {
    const int fd = ConnectTo(address->ai_family, address->ai_addr, address->ai_addrlen, deadline);
    if (fd >= 0) return fd;
  }
  return -1;
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

absl::StatusOr<int> ListenOnThisHost(Endpoint& endpoint) {
  endpoint.name = absl::StrCat("lockstep-watch-", RandomToken());
  socklen_t length = 0;
  const sockaddr_un address = AbstractAddress(endpoint.name, &length);
  int fd = socket(AF_UNIX, kSocketFlags, 0);
  fd = FdIf(
      fd, fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 && listen(fd, SOMAXCONN) == 0);
  if (fd < 0) return DescriptorError("cannot listen on an abstract Unix socket", errno);
  return fd;
}

absl::StatusOr<int> ListenOnNetwork(const std::string& host, Endpoint& endpoint) {
  LOCKSTEP_ASSIGN_OR_RETURN(const AddressList list, Resolve(host.c_str(), "0"));
  int fd = BindFirst(list);
  if (fd < 0 && errno == EADDRNOTAVAIL) {
    LOCKSTEP_ASSIGN_OR_RETURN(const AddressList any, Resolve(nullptr, "0"));
    fd = BindFirst(any);
  }
  if (fd < 0) return DescriptorError(absl::StrCat("cannot listen on ", host), errno);
  endpoint.host = host;
  endpoint.name = BoundPort(fd);
  return fd;
}

absl::StatusOr<int> Connect(const std::string& whom, const Endpoint& endpoint, absl::Time deadline) {
  int fd = -1;
  if (endpoint.host.empty()) {
    fd = ConnectToAbstract(endpoint.name, deadline);
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(fd, ConnectToNetwork(endpoint, deadline));
  }
  if (fd >= 0) {
    TuneConnection(fd);
    return fd;
  }
  const int error = errno;
  const std::string where = endpoint.host.empty() ? "" : absl::StrCat(" at ", WithPort(endpoint.host, endpoint.name));
  const absl::Status status = DescriptorError(absl::StrCat("cannot connect to ", whom, where), error);
  return absl::Now() < deadline ? status : absl::DeadlineExceededError(status.message());
}

}  // namespace lockstep::comm::internal
