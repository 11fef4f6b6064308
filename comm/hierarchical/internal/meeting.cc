#include "lockstep/comm/hierarchical/internal/meeting.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/status.h"

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

struct Address {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// 128 random bits.
std::string RandomHex() {
  std::random_device device;
  std::string hex;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&hex, absl::Hex(device(), absl::kZeroPad8));
  return hex;
}

absl::StatusOr<Address> Resolve(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return absl::InternalError(absl::StrCat("the address ", host, ": ", gai_strerror(error)));
  Address address;
  memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

int Port(int listener) {
  Address own;
  own.bytes = sizeof(own.storage);
  getsockname(listener, own.get(), &own.bytes);
  return ntohs(own.storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own.storage).sin6_port
                                                 : reinterpret_cast<sockaddr_in&>(own.storage).sin_port);
}

// A rank may be slow for longer than any limit on unacknowledged data, so there is none: the group's deadlines and its
// watch find a host that vanished, and Links::Wait() one that this host does not reach.
void Tune(int fd) {
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  AskForAnswers(fd);
}

int PollTimeout(absl::Time deadline) {
  const absl::Duration left = std::min(deadline - absl::Now(), kLookInterval);
  return static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(left) + 1));
}

// One rank's side of the meeting.
class Meeting {
 public:
  explicit Meeting(const LinksOptions& options)
      : options_(options), fds_(options.size * options.lanes, -1), key_(RandomHex()) {}
  ~Meeting() {
    for (const int fd : fds_) {
      if (fd >= 0) close(fd);
    }
    for (const Stranger& stranger : strangers_) close(stranger.fd);
    if (listener_ >= 0) close(listener_);
  }

  absl::Status Hold() {
    LOCKSTEP_RETURN_IF_ERROR(Listen());
    for (int peer = 0; peer < options_.rank; ++peer) LOCKSTEP_RETURN_IF_ERROR(Call(peer));
    return Answer();
  }
  std::vector<int> Take() { return std::exchange(fds_, {}); }

 private:
  struct Stranger {
    int fd;
    absl::Time since;
    std::string text;  // what has been read of the hello
  };

  std::string Me() const { return absl::StrCat("rank ", options_.names[options_.rank]); }
  int& Fd(int peer, int lane) { return fds_[peer * options_.lanes + lane]; }

  absl::Status Listen() {
    LOCKSTEP_ASSIGN_OR_RETURN(Address address, Resolve(options_.address, "0"));
    listener_ = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener_ < 0) return DescriptorError(absl::StrCat(Me(), ": a socket"), errno);
    if (bind(listener_, address.get(), address.bytes) != 0 || listen(listener_, SOMAXCONN) != 0) {
      return absl::UnavailableError(
          absl::StrCat(Me(), ": listening at ", options_.address, " for other hosts: ", strerror(errno)));
    }
    return options_.publish(absl::StrCat(options_.rank),
                            absl::StrCat(options_.address, " ", Port(listener_), " ", key_));
  }

  absl::Status Call(int peer) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, options_.read(absl::StrCat(peer), options_.deadline));
    const std::vector<std::string> fields = absl::StrSplit(text, ' ');
    if (fields.size() != 3 || fields[2].size() != kKeyBytes) {
      return absl::InternalError(absl::StrCat(Me(), ": rank ", options_.names[peer], " published \"", text,
                                              "\"; expected an address, a port and a key"));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(Address address, Resolve(fields[0], fields[1]));
    for (int lane = 0; lane < options_.lanes; ++lane)
      LOCKSTEP_RETURN_IF_ERROR(CallLane(peer, lane, address, fields[2]));
    return absl::OkStatus();
  }

  absl::Status CallLane(int peer, int lane, Address& address, const std::string& key) {
    const std::string what = absl::StrCat(Me(), ": connecting to rank ", options_.names[peer]);
    const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return DescriptorError(what, errno);
    Fd(peer, lane) = fd;
    Tune(fd);
    int error = connect(fd, address.get(), address.bytes) == 0 ? 0 : errno;
    const absl::Time answered_by = absl::Now() + kConnectPatience;
    while (error == EINPROGRESS) {
      pollfd polled = {fd, POLLOUT, 0};
      if (poll(&polled, 1, PollTimeout(options_.deadline)) > 0) {
        socklen_t bytes = sizeof(error);
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        break;
      }
      LOCKSTEP_RETURN_IF_ERROR(options_.check());
      if (absl::Now() >= options_.deadline) return absl::DeadlineExceededError(absl::StrCat(what, " timed out"));
      if (absl::Now() >= answered_by) {
        return absl::UnavailableError(
            absl::StrCat(what, ": its host does not answer this one; can the two reach each other?"));
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
        if (Fd(peer, lane) >= 0) continue;
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
      std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
      for (const Stranger& stranger : strangers_) polled.push_back({stranger.fd, POLLIN, 0});
      const int ready = poll(polled.data(), polled.size(), PollTimeout(options_.deadline));
      if (absl::Now() >= look) {
        LOCKSTEP_RETURN_IF_ERROR(options_.check());
        look = absl::Now() + kLookInterval;
      }
      HearStrangers();
      if (ready > 0 && polled[0].revents != 0) LOCKSTEP_RETURN_IF_ERROR(Accept(missing.size() * options_.lanes));
    }
  }

  absl::Status Accept(size_t expected) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (IsOutOfDescriptors(errno)) return DescriptorError(absl::StrCat(Me(), ": accepting a connection"), errno);
      return absl::OkStatus();  // it has gone already
    }
    Tune(fd);
    strangers_.push_back({fd, absl::Now(), ""});
    HearStrangers();
    if (strangers_.size() > kMostStrangers + expected) {
      close(strangers_.front().fd);
      strangers_.pop_front();
    }
    return absl::OkStatus();
  }

  void HearStrangers() {
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
      const bool keep = Hear(*stranger);
      stranger = keep ? std::next(stranger) : strangers_.erase(stranger);
    }
  }

  // Whether more is to be heard. Takes or closes the connection otherwise.
  bool Hear(Stranger& stranger) {
    char buffer[sizeof(Hello)];
    // No byte beyond the hello, which belongs to the first call.
    const ssize_t bytes = recv(stranger.fd, buffer, sizeof(Hello) - stranger.text.size(), MSG_DONTWAIT);
    const bool waits = bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (bytes > 0) stranger.text.append(buffer, bytes);
    if (stranger.text.size() < sizeof(Hello)) {
      if ((bytes > 0 || waits) && absl::Now() < stranger.since + kStrangerPatience) return true;
      close(stranger.fd);
      return false;
    }
    Hello hello;
    memcpy(&hello, stranger.text.data(), sizeof(hello));
    const bool known = memcmp(hello.key, key_.data(), kKeyBytes) == 0 && hello.rank > options_.rank &&
                       hello.rank < options_.size && hello.lane >= 0 && hello.lane < options_.lanes &&
                       Fd(hello.rank, hello.lane) < 0;
    if (known) {
      Fd(hello.rank, hello.lane) = stranger.fd;
    } else {
      close(stranger.fd);
    }
    return false;
  }

  const LinksOptions& options_;
  std::vector<int> fds_;
  const std::string key_;
  int listener_ = -1;
  std::list<Stranger> strangers_;
};

}  // namespace

absl::StatusOr<std::vector<int>> Meet(const LinksOptions& options) {
  Meeting meeting(options);
  LOCKSTEP_RETURN_IF_ERROR(meeting.Hold());
  return meeting.Take();
}

}  // namespace lockstep::comm::hierarchical::internal
