#include "lockstep/launch/status/local_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/status/status_folder.h"

namespace lockstep::launch {
namespace {

constexpr size_t kMostClients = 16, kLongestLine = 1024;
constexpr int kBacklog = 256;  // clients that wait in the kernel
constexpr absl::Duration kPatience = absl::Seconds(5), kShortPatience = absl::Milliseconds(100);
// How long nobody is accepted after no descriptor was free.
constexpr absl::Duration kPause = absl::Seconds(1);

absl::Status NoSocket(absl::string_view doing) {
  return DescriptorError(absl::StrCat("no socket for the status: ", doing), errno,
                         absl::StatusCode::kFailedPrecondition);
}

// Another user can only come here if the folder was opened to others meanwhile.
bool IsOurUser(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

LocalServer::LocalServer(UniqueFd folder, pid_t pid, Answer answer)
    : folder_(std::move(folder)), pid_(pid), answer_(std::move(answer)) {}

LocalServer::~LocalServer() {
  if (published_) unlinkat(folder_.get(), SocketName(pid_).c_str(), 0);
}

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Create(const std::string& folder, pid_t pid, Answer answer) {
  LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd fd, OpenStatusFolder(folder, /*create=*/true));
  RemoveStaleSockets(fd);
  std::unique_ptr<LocalServer> server(new LocalServer(std::move(fd), pid, std::move(answer)));
  LOCKSTEP_RETURN_IF_ERROR(server->Listen());
  LOCKSTEP_RETURN_IF_ERROR(Annotate(server->Publish(), Printable(folder)));
  LOCKSTEP_RETURN_IF_ERROR(server->Watch());
  return server;
}

// The socket gets its name when it listens. So nobody takes it for one whose launcher is gone.
absl::Status LocalServer::Listen() {
  const std::string unpublished = absl::StrCat(".", SocketName(pid_));
  unlinkat(folder_.get(), unpublished.c_str(), 0);
  listener_ = Bind(PathAddress(PathIn(folder_, unpublished)));
  if (!listener_.valid()) return NoSocket("bind");
  return listen(listener_.get(), kBacklog) == 0 ? absl::OkStatus() : NoSocket("listen");
}

absl::Status LocalServer::Publish() {
  const std::string name = SocketName(pid_), unpublished = absl::StrCat(".", name);
  // An earlier launcher with this pid may have left its socket.
  const UniqueFd other = ConnectTo(PathIn(folder_, name));
  if (other.valid() || errno == EAGAIN) {
    unlinkat(folder_.get(), unpublished.c_str(), 0);
    return absl::FailedPreconditionError(absl::StrCat("a launcher of another container listens at ", name, " already"));
  }
  if (renameat(folder_.get(), unpublished.c_str(), folder_.get(), name.c_str()) != 0) return NoSocket("rename");
  published_ = true;
  return absl::OkStatus();
}

absl::Status LocalServer::Watch() {
  events_ = AboveStdio(UniqueFd(epoll_create1(EPOLL_CLOEXEC)));
  timer_ = AboveStdio(UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
  if (!events_.valid() || !timer_.valid()) return NoSocket("epoll and timerfd");
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = timer_.get();
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0) return NoSocket("epoll_ctl");
  WatchListener(true);
  return absl::OkStatus();
}

void LocalServer::WatchListener(bool watch) {
  if (watch == accepts_) return;
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = listener_.get();
  epoll_ctl(events_.get(), watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.get(), &event);
  accepts_ = watch;
}

void LocalServer::Serve() {
  epoll_event events[kMostClients + 2];
  const int ready = epoll_wait(events_.get(), events, static_cast<int>(std::size(events)), 0);
  bool comes = false;
  for (int i = 0; i < ready; ++i) {
    const int fd = events[i].data.fd;
    comes |= fd == listener_.get();
    const auto found = clients_.find(fd);
    // A descriptor that is closed leaves the epoll.
    if (found != clients_.end() && !Advance(&found->second)) clients_.erase(found);
  }
  const int64_t now_ns = MonotonicNanos();
  RemoveExpired(now_ns);
  if (comes && now_ns >= pause_until_) Accept();
  WatchListener(clients_.size() < kMostClients && now_ns >= pause_until_);
  SetTimer();
}

// One that has said its line already is answered at once.
void LocalServer::Accept() {
  for (size_t i = 0; i < kMostClients && clients_.size() < kMostClients; ++i) {
    UniqueFd fd = AboveStdio(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!fd.valid()) {
      if (IsOutOfDescriptors(errno)) pause_until_ = After(kPause);
      return;
    }
    if (!IsOurUser(fd.get())) continue;
    const int number = fd.get();
    Client client;
    client.fd = std::move(fd);
    client.accepted_ns = MonotonicNanos();
    if (!Advance(&client)) continue;
    epoll_event event = {};
    event.events = client.answers ? EPOLLOUT : EPOLLIN;
    event.data.fd = number;
    epoll_ctl(events_.get(), EPOLL_CTL_ADD, number, &event);
    clients_[number] = std::move(client);
  }
}

// Reads the line and writes the answer, as far as both go without waiting. Whether something is left to do.
bool LocalServer::Advance(Client* client) {
  if (!client->answers) {
    if (!Read(client)) return false;
    const size_t end = client->line.find('\n');
    if (end == std::string::npos) return client->line.size() < kLongestLine;
    client->answer = absl::StrCat(answer_(client->line.substr(0, end)), "\n");
    client->answers = true;
  }
  const ssize_t written = send(client->fd.get(), client->answer.data(), client->answer.size(), MSG_NOSIGNAL);
  if (written < 0 && !WouldBlock(errno)) return false;
  client->answer.erase(0, std::max<ssize_t>(written, 0));
  if (client->answer.empty()) return false;
  epoll_event event = {};
  event.events = EPOLLOUT;
  event.data.fd = client->fd.get();
  epoll_ctl(events_.get(), EPOLL_CTL_MOD, client->fd.get(), &event);  // has no effect before it is added
  return true;
}

bool LocalServer::Read(Client* client) {
  char buffer[kLongestLine];
  const ssize_t read = recv(client->fd.get(), buffer, sizeof(buffer) - client->line.size(), 0);
  if (read < 0) return WouldBlock(errno);
  client->line.append(buffer, read);
  return read > 0;
}

int64_t LocalServer::DeadlineOf(const Client& client) const {
  const bool is_in_the_way = !client.answers && clients_.size() >= kMostClients;
  return After(client.accepted_ns, is_in_the_way ? kShortPatience : kPatience);
}

void LocalServer::RemoveExpired(int64_t now_ns) {
  for (auto client = clients_.begin(); client != clients_.end();) {
    client = now_ns >= DeadlineOf(client->second) ? clients_.erase(client) : std::next(client);
  }
}

void LocalServer::SetTimer() {
  int64_t next_ns = accepts_ || clients_.size() >= kMostClients ? kNever : pause_until_;
  for (const auto& [fd, client] : clients_) next_ns = std::min(next_ns, DeadlineOf(client));
  itimerspec time = {};  // all zero: it never ends
  if (next_ns != kNever) {
    time.it_value.tv_sec = next_ns / 1'000'000'000;
    time.it_value.tv_nsec = next_ns % 1'000'000'000;
  }
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr);
}

}  // namespace lockstep::launch
