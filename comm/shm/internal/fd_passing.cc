#include "lockstep/comm/shm/internal/fd_passing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/status.h"

namespace lockstep::comm::shm::internal {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kRequestBytes = kTokenBytes + sizeof(int32_t);
// Connections that have not shown the token yet, besides one for each rank that is still to come: on a busy machine
// many ranks connect before they get to send it.
constexpr size_t kMostStrangers = 64;
constexpr absl::Duration kStrangerPatience = absl::Seconds(2);
constexpr absl::Duration kLookInterval = absl::Milliseconds(20);
constexpr absl::Duration kConnectPatience = absl::Milliseconds(250);
constexpr absl::Duration kRetryInterval = absl::Milliseconds(20);

absl::Status SystemError(absl::string_view what) {
  return DescriptorError(what, errno, absl::StatusCode::kFailedPrecondition);
}

// 128 random bits.
std::string RandomHex() {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&hex, absl::Hex(device(), absl::kZeroPad8));
  return hex;
}

// For a wait until `deadline`, or until the next look at the other conditions that end it.
int LookTimeout(absl::Time deadline) { return PollTimeout(std::min(deadline - absl::Now(), kLookInterval)); }

absl::Status Ask(const StillWanted& still_wanted) { return still_wanted ? still_wanted() : absl::OkStatus(); }

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

// The descriptor received in answer to a request; invalid if the connection ended without one.
absl::StatusOr<UniqueFd> TakeFd(int connection) {
  FdMessage message;
  if (recvmsg(connection, &message.header, MSG_CMSG_CLOEXEC) != 1) return UniqueFd();
  // If this process has no free descriptor, the kernel drops the one that was sent, and reports that only here.
  if (message.header.msg_flags & MSG_CTRUNC) return DescriptorError("receiving the shared memory's descriptor", EMFILE);
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return UniqueFd();
  int fd = -1;
  memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
  return UniqueFd(fd);
}

// Connections that have not proved yet that they are a rank's. A rank sends its whole request as soon as it has
// connected, so its connection is rarely among them. It retries if its connection was closed.
class Strangers {
 public:
  struct Stranger {
    UniqueFd connection;
    absl::Time since;
    std::string text;  // what has been read
  };

  // The descriptors to poll, the listener's first.
  std::vector<pollfd> Polled(int listener) const {
    std::vector<pollfd> polled = {{listener, POLLIN, 0}};
    for (const Stranger& stranger : strangers_) polled.push_back({stranger.connection.get(), POLLIN, 0});
    return polled;
  }

  bool empty() const { return strangers_.empty(); }

  void Add(UniqueFd connection) { strangers_.push_back({std::move(connection), absl::Now(), ""}); }

  Stranger& At(int connection) { return *Find(connection); }
  void Drop(int connection) { strangers_.erase(Find(connection)); }
  void DropOldest() { strangers_.pop_front(); }

  void DropTooManyOrTooOld(size_t most) {
    while (strangers_.size() > most) DropOldest();
    while (!empty() && absl::Now() >= strangers_.front().since + kStrangerPatience) DropOldest();
  }

 private:
  std::list<Stranger>::iterator Find(int connection) {
    return std::find_if(strangers_.begin(), strangers_.end(),
                        [&](const Stranger& stranger) { return stranger.connection.get() == connection; });
  }

  std::list<Stranger> strangers_;  // the oldest first
};

// One call of FdServer::Serve.
class Handout {
 public:
  Handout(int listener, const std::string& token, int fd, int size)
      : listener_(listener), token_(token), fd_(fd), others_(size - 1) {
    for (int rank = 1; rank < size; ++rank) missing_.push_back(rank);
  }

  const std::vector<int>& missing() const { return missing_; }

  absl::Status Step(int timeout_ms) {
    strangers_.DropTooManyOrTooOld(kMostStrangers + missing_.size());
    std::vector<pollfd> polled = strangers_.Polled(listener_);
    if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) return SystemError("polling for ranks");
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents) Read(polled[i].fd);
    }
    return polled[0].revents ? Accept() : absl::OkStatus();
  }

 private:
  absl::Status Accept() {
    UniqueFd accepted(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    while (!accepted.valid() && IsOutOfDescriptors(errno) && !strangers_.empty()) {
      strangers_.DropOldest();
      accepted = UniqueFd(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    }
    if (!accepted.valid()) {
      if (!IsOutOfDescriptors(errno)) return absl::OkStatus();  // that peer has left again
      const int number = others_ - static_cast<int>(missing_.size()) + 1;
      return SystemError(absl::StrCat("accepting connection ", number, " of ", others_));
    }
    const int connection = accepted.get();
    strangers_.Add(std::move(accepted));
    if (IsThisUser(connection)) {
      Read(connection);
    } else {
      strangers_.Drop(connection);
    }
    return absl::OkStatus();
  }

  // Reads from `connection`, and drops it once its request is complete or cannot become complete.
  void Read(int connection) {
    char bytes[kRequestBytes];
    std::string& text = strangers_.At(connection).text;
    const ssize_t count = recv(connection, bytes, kRequestBytes - text.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count > 0) text.append(bytes, count);
    if (text.size() == kRequestBytes) {
      Answer(connection, text);
    } else if (count > 0) {
      return;
    }
    strangers_.Drop(connection);
  }

  void Answer(int connection, const std::string& request) {
    int32_t rank = 0;
    memcpy(&rank, request.data() + kTokenBytes, sizeof(rank));
    const auto found = std::find(missing_.begin(), missing_.end(), rank);
    if (request.substr(0, kTokenBytes) == token_ && found != missing_.end() && SendFd(connection, fd_)) {
      missing_.erase(found);
    }
  }

  const int listener_;
  const std::string& token_;
  const int fd_;
  const int others_;
  std::vector<int> missing_;
  Strangers strangers_;
};

// A connection over which the server got this rank's request. Connecting waits while the server's queue is full, until
// the deadline.
absl::StatusOr<UniqueFd> Request(const std::string& name, const std::string& request) {
  UniqueFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection.valid()) return SystemError("making a Unix socket");
  const timeval patience = absl::ToTimeval(kConnectPatience);
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const SocketAddress server = AbstractAddress(name);
  const bool asked =
      connect(connection.get(), server.get(), server.size) == 0 &&
      send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size());
  if (asked || errno == EAGAIN || errno == EPIPE || errno == ECONNRESET) return connection;
  return absl::UnavailableError(absl::StrCat("asking rank 0 for the shared memory: ", strerror(errno)));
}

// Invalid if the server closed the connection without an answer.
absl::StatusOr<UniqueFd> AwaitFd(int connection, absl::Time deadline, const StillWanted& still_wanted) {
  pollfd polled = {connection, POLLIN, 0};
  while (true) {
    const int ready = poll(&polled, 1, LookTimeout(deadline));
    if (ready > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd fd, TakeFd(connection));
      if (fd.valid()) return fd;
    }
    LOCKSTEP_RETURN_IF_ERROR(Ask(still_wanted));
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("rank 0 did not hand out the shared memory");
    if (ready > 0) return UniqueFd();
  }
}

}  // namespace

FdServer::FdServer(UniqueFd listener, std::string address, std::string token)
    : listener_(std::move(listener)), address_(std::move(address)), token_(std::move(token)) {}

absl::StatusOr<std::unique_ptr<FdServer>> FdServer::Listen() {
  const std::string name = absl::StrCat("lockstep-shm-", RandomHex());
  UniqueFd listener = ListenAt(AbstractAddress(name));
  if (!listener.valid()) return SystemError("making a Unix socket");
  const std::string token = RandomHex();
  return std::unique_ptr<FdServer>(new FdServer(std::move(listener), absl::StrCat(name, "|", token), token));
}

absl::Status FdServer::Serve(int fd, int size, absl::Time deadline, const StillWanted& still_wanted) {
  Handout handout(listener_.get(), token_, fd, size);
  absl::Time next_look = absl::Now() + kLookInterval;
  while (!handout.missing().empty()) {
    const absl::Time now = absl::Now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("these ranks did not come for the shared memory: ", absl::StrJoin(handout.missing(), ", ")));
    }
    if (now >= next_look) {
      LOCKSTEP_RETURN_IF_ERROR(Ask(still_wanted));
      next_look = now + kLookInterval;
    }
    LOCKSTEP_RETURN_IF_ERROR(handout.Step(LookTimeout(deadline)));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ReceiveFd(const std::string& address, int rank, absl::Time deadline,
                                   const StillWanted& still_wanted) {
  const size_t bar = address.find('|');
  if (bar == std::string::npos || address.size() - bar - 1 != kTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is not an address of rank 0's shared memory"));
  }
  std::string request = address.substr(bar + 1);
  const int32_t number = rank;
  request.append(reinterpret_cast<const char*>(&number), sizeof(number));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const UniqueFd connection, Request(address.substr(0, bar), request));
    LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd fd, AwaitFd(connection.get(), deadline, still_wanted));
    if (fd.valid()) return fd;
    absl::SleepFor(kRetryInterval);
  }
}

}  // namespace lockstep::comm::shm::internal
