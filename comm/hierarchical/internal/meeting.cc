#include "lockstep/comm/hierarchical/internal/meeting.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <list>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/silent_hosts.h"

namespace lockstep::comm::hierarchical::internal {
namespace {

constexpr size_t kKeyBytes = 32;
// A connection that has not shown the key by then is closed.
constexpr absl::Duration kStrangerPatience = absl::Seconds(2);
// A rank listens before it says where, so its system answers at once, even if the rank is slow. The fourth and last try
// is after 15 s.
constexpr absl::Duration kConnectPatience = absl::Seconds(17);
constexpr absl::Duration kLookInterval = absl::Milliseconds(250);
// Connections that have not shown the key yet, besides those that are still to come.
constexpr size_t kMostStrangers = 64;

// The first bytes on a connection.
struct Hello {
  char key[kKeyBytes];
  int32_t rank;
  int32_t lane;
};

// 128 random bits.
std::string RandomHex() {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&hex, absl::Hex(device(), absl::kZeroPad8));
  return hex;
}

// A rank may be slow for longer than any limit on unacknowledged data, so there is none: the group's deadlines and its
// watch find a host that vanished, and Links::Wait() one that this host does not reach.
void Tune(int fd) {
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  AskForAnswers(fd);
}

// For a wait until `deadline`, or until the next look at what else ends the meeting.
int LookTimeout(absl::Time deadline) { return PollTimeout(std::min(deadline - absl::Now(), kLookInterval)); }

// One rank's side of the meeting.
class Meeting {
 public:
  explicit Meeting(const LinksOptions& options)
      : options_(options), fds_(options.size * options.lanes), key_(RandomHex()) {}

  absl::Status Hold() {
    LOCKSTEP_RETURN_IF_ERROR(Listen());
    for (int peer = 0; peer < options_.rank; ++peer) LOCKSTEP_RETURN_IF_ERROR(Call(peer));
    return Answer();
  }
  std::vector<UniqueFd> Take() { return std::move(fds_); }

 private:
  struct Stranger {
    UniqueFd fd;
    absl::Time since;
    std::string text;  // what has been read of the hello
  };

  std::string Me() const { return absl::StrCat("rank ", options_.names[options_.rank]); }
  UniqueFd& Fd(int peer, int lane) { return fds_[peer * options_.lanes + lane]; }

  absl::Status Listen() {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveHost(options_.address, 0));
    listener_ = ListenAt(addresses.front());
    if (!listener_.valid()) {
      return DescriptorError(absl::StrCat(Me(), ": listening at ", options_.address, " for other hosts"), errno);
    }
    const int port = BoundAddress(listener_.get()).port();
    return options_.publish(absl::StrCat(options_.rank), absl::StrCat(options_.address, " ", port, " ", key_));
  }

  absl::Status Call(int peer) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, options_.read(absl::StrCat(peer), options_.deadline));
    const std::vector<std::string> fields = absl::StrSplit(text, ' ');
    int port = 0;
    if (fields.size() != 3 || fields[2].size() != kKeyBytes || !absl::SimpleAtoi(fields[1], &port)) {
      return absl::InternalError(absl::StrCat(Me(), ": rank ", options_.names[peer], " published \"", text,
                                              "\"; expected an address, a port and a key"));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, ResolveHost(fields[0], port));
    for (int lane = 0; lane < options_.lanes; ++lane)
      LOCKSTEP_RETURN_IF_ERROR(CallLane(peer, lane, fields[0], addresses.front(), fields[2]));
    return absl::OkStatus();
  }

  absl::Status CallLane(int peer, int lane, const std::string& host, const SocketAddress& address,
                        const std::string& key) {
    const std::string what = absl::StrCat(Me(), ": connecting to rank ", options_.names[peer]);
    UniqueFd& socket = Fd(peer, lane);
    socket = UniqueFd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return DescriptorError(what, errno);
    const int fd = socket.get();
    Tune(fd);
    int error = connect(fd, address.get(), address.size) == 0 ? 0 : errno;
    const absl::Time answered_by = absl::Now() + kConnectPatience;
    while (error == EINPROGRESS) {
      pollfd polled = {fd, POLLOUT, 0};
      if (poll(&polled, 1, LookTimeout(options_.deadline)) > 0) {
        socklen_t bytes = sizeof(error);
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        break;
      }
      LOCKSTEP_RETURN_IF_ERROR(options_.check());
      if (absl::Now() >= options_.deadline) return absl::DeadlineExceededError(absl::StrCat(what, " timed out"));
      if (absl::Now() >= answered_by) {
        comm::internal::RecordSilentHost(host);
        return absl::UnavailableError(absl::StrCat(what, ": its host ", comm::internal::kDoesNotAnswer));
      }
    }
    if (error != 0) return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
    Hello hello = {{}, options_.rank, lane};
    memcpy(hello.key, key.data(), kKeyBytes);
    // A new connection has room for it.
    if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
      return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
    }
    return absl::OkStatus();
  }

  // The ranks after this one that have not connected all their lanes.
  std::vector<int> Missing() {
    std::vector<int> missing;
    for (int peer = options_.rank + 1; peer < options_.size; ++peer) {
      for (int lane = 0; lane < options_.lanes; ++lane) {
        if (Fd(peer, lane).valid()) continue;
        missing.push_back(options_.names[peer]);
        break;
      }
    }
    return missing;
  }

  absl::Status Answer() {
    absl::Time look = absl::Now() + kLookInterval;
    while (true) {
      const std::vector<int> missing = Missing();
      if (missing.empty()) return absl::OkStatus();
      if (absl::Now() >= options_.deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat(Me(), ": timed out waiting for the connections of rank ", absl::StrJoin(missing, ", ")));
      }
      std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
      for (const Stranger& stranger : strangers_) polled.push_back({stranger.fd.get(), POLLIN, 0});
      const int ready = poll(polled.data(), polled.size(), LookTimeout(options_.deadline));
      if (absl::Now() >= look) {
        LOCKSTEP_RETURN_IF_ERROR(options_.check());
        look = absl::Now() + kLookInterval;
      }
      ReadStrangers();
      if (ready > 0 && polled[0].revents != 0) LOCKSTEP_RETURN_IF_ERROR(Accept(missing.size() * options_.lanes));
    }
  }

  absl::Status Accept(size_t expected) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (IsOutOfDescriptors(errno)) return DescriptorError(absl::StrCat(Me(), ": accepting a connection"), errno);
      return absl::OkStatus();  // it has gone already
    }
    Tune(fd.get());
    strangers_.push_back({std::move(fd), absl::Now(), ""});
    ReadStrangers();
    if (strangers_.size() > kMostStrangers + expected) strangers_.pop_front();
    return absl::OkStatus();
  }

  void ReadStrangers() {
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
      const bool keep = Read(*stranger);
      stranger = keep ? std::next(stranger) : strangers_.erase(stranger);
    }
  }

  // Returns whether more bytes may come. If not, the connection of a rank has been taken.
  bool Read(Stranger& stranger) {
    char buffer[sizeof(Hello)];
    // No byte beyond the hello, which belongs to the first call.
    const ssize_t bytes = recv(stranger.fd.get(), buffer, sizeof(Hello) - stranger.text.size(), MSG_DONTWAIT);
    const bool waits = bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (bytes > 0) stranger.text.append(buffer, bytes);
    if (stranger.text.size() < sizeof(Hello)) {
      return (bytes > 0 || waits) && absl::Now() < stranger.since + kStrangerPatience;
    }
    Hello hello;
    memcpy(&hello, stranger.text.data(), sizeof(hello));
    const bool known = memcmp(hello.key, key_.data(), kKeyBytes) == 0 && hello.rank > options_.rank &&
                       hello.rank < options_.size && hello.lane >= 0 && hello.lane < options_.lanes &&
                       !Fd(hello.rank, hello.lane).valid();
    if (known) Fd(hello.rank, hello.lane) = std::move(stranger.fd);
    return false;
  }

  const LinksOptions& options_;
  std::vector<UniqueFd> fds_;
  const std::string key_;
  UniqueFd listener_;
  std::list<Stranger> strangers_;
};

}  // namespace

absl::StatusOr<std::vector<UniqueFd>> Meet(const LinksOptions& options) {
  Meeting meeting(options);
  LOCKSTEP_RETURN_IF_ERROR(meeting.Hold());
  return meeting.Take();
}

}  // namespace lockstep::comm::hierarchical::internal
