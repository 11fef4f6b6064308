#include "lockstep/comm/gloo/internal/connection_watch.h"

#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"

namespace lockstep::comm::internal {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(2);
// Longer than the group's watch needs for a host that vanished: see MillisecondsWithoutAnswer().
constexpr int kMostSilenceMs = 25'000;

// The address of the other end; nullopt: this is not a TCP connection.
std::optional<std::string> PeerOf(int fd) {
  sockaddr_storage peer;
  socklen_t length = sizeof(peer);
  auto* const address = reinterpret_cast<sockaddr*>(&peer);
  if (getpeername(fd, address, &length) != 0 || (peer.ss_family != AF_INET && peer.ss_family != AF_INET6)) {
    return std::nullopt;
  }
  int type = 0;
  socklen_t type_length = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) != 0 || type != SOCK_STREAM) return std::nullopt;
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

ino_t InodeOf(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::set<int> TcpConnections() {
  std::set<int> connections;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (!folder) return connections;
  while (const dirent* entry = readdir(folder.get())) {
    int fd;
    if (absl::SimpleAtoi(entry->d_name, &fd) && PeerOf(fd)) connections.insert(fd);
  }
  return connections;
}

absl::StatusOr<std::unique_ptr<ConnectionWatch>> ConnectionWatch::Start(
    const std::set<int>& before, std::function<void(const std::string&)> on_silence) {
  std::unique_ptr<ConnectionWatch> watch(new ConnectionWatch(std::move(on_silence)));
  for (const int fd : TcpConnections()) {
    if (before.count(fd) != 0) continue;
    AskForAnswers(fd);
    watch->connections_[fd] = InodeOf(fd);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(watch->thread_,
                            StartThread("the thread of Gloo's connections", [raw = watch.get()] { raw->Run(); }));
  return watch;
}

ConnectionWatch::~ConnectionWatch() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::string ConnectionWatch::Silent() const {
  for (const auto& [fd, inode] : connections_) {
    if (InodeOf(fd) != inode || MillisecondsWithoutAnswer(fd) < kMostSilenceMs) continue;
    if (const std::optional<std::string> peer = PeerOf(fd)) return *peer;
  }
  return "";
}

void ConnectionWatch::Run() {
  std::string silent;
  while (silent.empty()) {
    {
      MutexLock lock(mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), kInterval)) return;
    }
    silent = Silent();
  }
  on_silence_(absl::StrCat("host ", silent, " does not answer this one; can the two reach each other?"));
}

}  // namespace lockstep::comm::internal
