#include "lockstep/comm/shm/internal/fd_passing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::shm::internal {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kRequestBytes = kTokenBytes + sizeof(int32_t);
constexpr size_t kMostStrangers = 64;  // connections that have shown no token yet

absl::Status SystemError(absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", strerror(errno)));
}

// 128 random bits.
std::string RandomHex() {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&hex, absl::Hex(device(), absl::kZeroPad8));
  return hex;
}

struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    memset(&address, 0, sizeof(address));
    address.sun_family = AF_UNIX;
    const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
    memcpy(address.sun_path + 1, name.data(), bytes);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address;
  socklen_t length;
};

int MillisecondsUntil(absl::Time deadline) {
  return static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - absl::Now()) + 1));
}

bool IsThisUser(int connection) {
  ucred credentials;
  socklen_t length = sizeof(credentials);
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == geteuid();
}

// A message of one byte with room for one descriptor.
struct FdMessage {
  FdMessage() {
    header.msg_iov = &payload;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  FdMessage(const FdMessage&) = delete;
  FdMessage& operator=(const FdMessage&) = delete;

  char byte = 'f';
  iovec payload = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
};

bool SendFd(int connection, int fd) {
  FdMessage message;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  return sendmsg(connection, &message.header, MSG_NOSIGNAL) == 1;
}

// -1 if none came with the message.
int TakeFd(int connection) {
  FdMessage message;
  if (recvmsg(connection, &message.header, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
  return fd;
}

// Those who have connected and not yet shown who they are.
class Connections {
 public:
  explicit Connections(int listener) : listener_(listener) {}

  // The descriptors to poll, the listener's first.
  std::vector<pollfd> Polled() const {
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    for (const auto& entry : read_) polled.push_back({entry.first, POLLIN, 0});
    return polled;
  }

  void Accept() {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) return;
    if (!IsThisUser(connection) || read_.size() >= kMostStrangers) {
      close(connection);
      return;
    }
    owned_.emplace(connection, OwnedFd(connection));
    read_[connection];
  }

  // The request, once it is whole; drops a connection that ends before.
  std::string Read(int connection) {
    char bytes[kRequestBytes];
    std::string& text = read_[connection];
    const ssize_t count = recv(connection, bytes, kRequestBytes - text.size(), 0);
    if (count > 0) text.append(bytes, count);
    if (text.size() == kRequestBytes) return text;
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) Drop(connection);
    return "";
  }

  void Drop(int connection) {
    read_.erase(connection);
    owned_.erase(connection);
  }

 private:
  const int listener_;
  std::map<int, std::string> read_;
  std::map<int, OwnedFd> owned_;
};

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

FdServer::FdServer(OwnedFd listener, std::string address, std::string token)
    : listener_(std::move(listener)), address_(std::move(address)), token_(std::move(token)) {}

absl::StatusOr<std::unique_ptr<FdServer>> FdServer::Listen() {
  OwnedFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) return SystemError("making a Unix socket");
  const std::string name = absl::StrCat("lockstep-shm-", RandomHex());
  const AbstractAddress address(name);
  if (bind(listener.get(), address.get(), address.length) != 0 || listen(listener.get(), 128) != 0) {
    return SystemError(absl::StrCat("listening at the abstract Unix address ", name));
  }
  const std::string token = RandomHex();
  return std::unique_ptr<FdServer>(new FdServer(std::move(listener), absl::StrCat(name, "|", token), token));
}

absl::Status FdServer::Serve(int fd, int size, absl::Time deadline) {
  std::vector<int> missing;
  for (int rank = 1; rank < size; ++rank) missing.push_back(rank);
  Connections connections(listener_.get());
  while (!missing.empty()) {
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("these ranks did not come for the shared memory: ", absl::StrJoin(missing, ", ")));
    }
    std::vector<pollfd> polled = connections.Polled();
    if (poll(polled.data(), polled.size(), MillisecondsUntil(deadline)) < 0 && errno != EINTR) {
      return SystemError("polling for ranks");
    }
    if (polled[0].revents) connections.Accept();
    for (size_t i = 1; i < polled.size(); ++i) {
      if (!polled[i].revents) continue;
      const std::string request = connections.Read(polled[i].fd);
      if (request.empty()) continue;
      int32_t rank = 0;
      memcpy(&rank, request.data() + kTokenBytes, sizeof(rank));
      const auto found = std::find(missing.begin(), missing.end(), rank);
      if (request.substr(0, kTokenBytes) == token_ && found != missing.end() && SendFd(polled[i].fd, fd)) {
        missing.erase(found);
      }
      connections.Drop(polled[i].fd);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OwnedFd> ReceiveFd(const std::string& address, int rank, absl::Time deadline) {
  const size_t bar = address.find('|');
  if (bar == std::string::npos || address.size() - bar - 1 != kTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is no address of rank 0's shared memory"));
  }
  OwnedFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return SystemError("making a Unix socket");
  const AbstractAddress server(address.substr(0, bar));
  std::string request = address.substr(bar + 1);
  const int32_t number = rank;
  request.append(reinterpret_cast<const char*>(&number), sizeof(number));
  if (connect(connection.get(), server.get(), server.length) != 0 ||
      send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    return absl::UnavailableError(absl::StrCat("asking rank 0 for the shared memory: ", strerror(errno)));
  }
  pollfd polled = {connection.get(), POLLIN, 0};
  if (poll(&polled, 1, MillisecondsUntil(deadline)) == 0) {
    return absl::DeadlineExceededError("rank 0 did not hand out the shared memory");
  }
  const int fd = TakeFd(connection.get());
  if (fd < 0) return absl::UnavailableError("rank 0 ended before it handed out the shared memory");
  return OwnedFd(fd);
}

}  // namespace lockstep::comm::shm::internal
